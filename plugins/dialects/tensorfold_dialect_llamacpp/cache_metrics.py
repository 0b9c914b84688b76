"""What the kept states hold and how often they served. A tier that is not there has no readings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from tensorfold.ir import JSON

__all__ = ["cache_metrics"]

MAIN_POOL = "main"
"""The pool of the model's own states without a window: every position of a sequence is in it."""


def cache_metrics(prefix: str, totals: Mapping[str, JSON]) -> Iterable[Metric]:
    """Gauges of memory and disk, of what the engine's totals tell."""
    pool = _table(_table(totals, "pools"), MAIN_POOL)
    disk = _table(totals, "disk")
    used, most, kept = (_number(pool, name) for name in ("used", "positions", "kept"))
    begun = _number(totals, "prompt_tokens_begun_total")
    fetched = _number(disk, "fetched_tokens_total") if disk else None
    reused = _number(totals, "prompt_tokens_reused_total")
    readings = (
        ("kv_cache_usage_ratio", "What running requests hold of the states, from 0 to 1.", _share(used, most)),
        ("kv_cache_tokens", "Positions that running requests hold.", used),
        ("kv_cache_max_tokens", "Positions in all.", most),
        ("kv_cache_reusable_tokens", "Positions of kept prompts in the device's memory.", kept),
        ("kv_cache_disk_tokens", "Tokens of kept prompts on disk.", _number(disk, "tokens")),
        ("kv_cache_hit_rate", "Prompt tokens that were kept, of all, from 0 to 1.", _share(reused, begun)),
        (
            "kv_cache_disk_hit_rate",
            "Prompt tokens brought back from disk, of all, from 0 to 1.",
            _share(fetched, begun),
        ),
    )
    for name, says, value in readings:
        if value is not None:
            yield GaugeMetricFamily(prefix + name, says, value=value)


def _share(part: float | None, whole: float | None) -> float | None:
    """None before there is anything to share."""
    if part is None or not whole:
        return None
    return part / whole


def _table(totals: Mapping[str, JSON], name: str) -> Mapping[str, JSON]:
    value = totals.get(name)
    return value if isinstance(value, dict) else {}


def _number(totals: Mapping[str, JSON], name: str) -> float | None:
    value = totals.get(name)
    return float(value) if isinstance(value, int | float) else None

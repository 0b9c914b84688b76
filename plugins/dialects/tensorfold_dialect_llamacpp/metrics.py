"""The engine's readings under llama.cpp's names, with the prefix `tabbyapi:`.

A reading that the engine does not have is left out, never shown as a permanent zero.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tensorfold.contracts.engine import Services
from tensorfold.ir import JSON

__all__ = ["LlamaCppMetrics"]

PREFIX = "tabbyapi:"

_COUNTERS = (
    ("requests", "requests_total", "Requests that the engine has taken."),
    ("prompt_tokens_cached", "cached_tokens_total", "Prompt tokens that were found in the cache."),
    ("prompt_seconds", "prefill_seconds_total", "Seconds in which prompts were computed."),
    ("tokens_predicted", "completion_tokens_total", "Tokens generated."),
    ("tokens_predicted_seconds", "decode_seconds_total", "Seconds in which replies were computed."),
    ("spec_decode_num_draft_tokens", "drafted_total", "Draft tokens that were verified."),
    ("spec_decode_num_accepted_tokens", "accepted_total", "Draft tokens that were kept."),
    ("spec_decode_num_drafts", "rounds_total", "Rounds that verified drafts or computed single tokens."),
)
"""Our name, the engine's, and what it says."""


class LlamaCppMetrics(Collector):
    """Reads the engine at each scrape. Remembers the last scrape, since which the rates are told."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = threading.Lock()
        self._last: dict[str, tuple[float, float]] = {}
        """Tokens and seconds of each rate, as they were at the last scrape."""

    def collect(self) -> Iterable[Metric]:
        """All readings."""
        status, model = self._services.engine.status(), self._services.model
        totals = status.details
        yield GaugeMetricFamily(f"{PREFIX}requests_processing", "Requests that are computed.", value=status.running)
        yield GaugeMetricFamily(f"{PREFIX}requests_deferred", "Requests in the queue.", value=status.waiting)
        info = GaugeMetricFamily(f"{PREFIX}model_info", "The served model.", labels=["model_name"])
        info.add_metric([model.id], 1)
        yield info
        for name, source, says in _COUNTERS:
            if (value := _number(totals, source)) is not None:
                yield CounterMetricFamily(f"{PREFIX}{name}", says, value=value)
        yield from self._prompts(totals)
        yield from self._rate("predicted", totals, _number(totals, "completion_tokens_total"), "decode_seconds_total")

    def _prompts(self, totals: Mapping[str, JSON]) -> Iterable[Metric]:
        asked, cached = _number(totals, "prompt_tokens_total"), _number(totals, "cached_tokens_total")
        if asked is None:
            return
        computed = asked - (cached or 0)
        yield CounterMetricFamily(f"{PREFIX}prompt_tokens", "Prompt tokens that were computed.", value=computed)
        yield from self._rate("prompt", totals, computed, "prefill_seconds_total")

    def _rate(self, name: str, totals: Mapping[str, JSON], tokens: float | None, source: str) -> Iterable[Metric]:
        """Tokens a second since the last scrape; 0 when there were none."""
        seconds = _number(totals, source)
        if tokens is None or seconds is None:
            return
        with self._lock:
            tokens_before, seconds_before = self._last.get(name, (0.0, 0.0))
            self._last[name] = tokens, seconds
        spent = seconds - seconds_before
        rate = (tokens - tokens_before) / spent if spent > 0 else 0.0
        yield GaugeMetricFamily(f"{PREFIX}{name}_tokens_seconds", "Tokens a second since the last scrape.", value=rate)


def _number(totals: Mapping[str, JSON], name: str) -> float | None:
    value = totals.get(name)
    return float(value) if isinstance(value, int | float) else None

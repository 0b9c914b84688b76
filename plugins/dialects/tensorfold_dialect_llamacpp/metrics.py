"""The server's readings under llama.cpp's names, with the prefix `tabbyapi:`.

A reading that the engine does not have is left out, never shown as a permanent zero. llama.cpp's `n_decode_total` and
`n_busy_slots_per_decode` have no equivalent here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tensorfold.contracts.engine import Services
from tensorfold.contracts.observe import Outcome
from tensorfold.ir import JSON, Request
from tensorfold.observe.metrics import FIRST_TOKEN_SECONDS, LATENCY_SECONDS
from tensorfold_dialect_llamacpp.cache_metrics import cache_metrics

__all__ = ["LlamaCppMetrics"]

PREFIX = "tabbyapi:"

_COUNTERS = (
    ("requests", "requests_total", "Requests that the engine has taken."),
    ("prompt_tokens", "prompt_tokens_computed_total", "Prompt tokens computed, as they are."),
    ("prompt_tokens_cached", "prompt_tokens_reused_total", "Prompt tokens that were found in the cache."),
    ("prompt_seconds", "chunk_seconds_total", "Seconds in which prompts were computed."),
    ("tokens_predicted", "completion_tokens_total", "Tokens generated, as they are."),
    (
        "tokens_predicted_seconds",
        "round_seconds_total",
        "Seconds in which replies were computed, however many at once.",
    ),
    ("spec_decode_num_draft_tokens", "drafted_total", "Draft tokens that were verified."),
    ("spec_decode_num_accepted_tokens", "accepted_total", "Draft tokens that were kept."),
    ("spec_decode_num_drafts", "drafts_total", "Drafts that were verified, of one token or several."),
)
"""Our name, the engine's, and what it says."""

_RATES = (
    ("prompt", "prompt_tokens_computed_total", "chunk_seconds_total"),
    ("predicted", "completion_tokens_total", "round_seconds_total"),
)
"""Our name, the engine's tokens and its seconds."""


class LlamaCppMetrics(Collector):
    """Reads the engine at each scrape, and is told of each request. Remembers the last scrape, since which the rates are."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._started_at = time.time()
        self._lock = threading.Lock()
        self._last: dict[str, tuple[float, float]] = {}
        """Tokens and seconds of each rate, as they were at the last scrape."""
        self._queue = _histogram("request_queue_time_seconds", "Until a request's prompt is begun.", LATENCY_SECONDS)
        self._first = _histogram("time_to_first_token_seconds", "Until a reply's first text.", FIRST_TOKEN_SECONDS)
        self._latency = _histogram("e2e_request_latency_seconds", "Until a reply's end.", LATENCY_SECONDS)

    # ---- told of requests ----------------------------------------------------------------------------------

    def started(self, request: Request, endpoint: str) -> None:
        """Nothing is counted before the end."""

    def ended(self, request: Request, endpoint: str, outcome: Outcome) -> None:
        """Count a request's times."""
        if outcome.timings is not None:
            self._latency.observe(outcome.seconds)
        if outcome.first_token_seconds is not None:
            self._first.observe(outcome.first_token_seconds)
        if outcome.timings is not None:
            self._queue.observe(outcome.timings.queued)

    # ---- read ----------------------------------------------------------------------------------------------

    def collect(self) -> Iterable[Metric]:
        """All readings."""
        status, model = self._services.engine.status(), self._services.model
        totals = status.details
        yield GaugeMetricFamily(f"{PREFIX}requests_processing", "Requests that are computed.", value=status.running)
        yield GaugeMetricFamily(f"{PREFIX}requests_deferred", "Requests in the queue.", value=status.waiting)
        yield GaugeMetricFamily(
            f"{PREFIX}process_start_time_seconds", "When the server began, since the epoch.", value=self._started_at
        )
        info = GaugeMetricFamily(f"{PREFIX}model_info", "The served model.", labels=["model_name"])
        info.add_metric([model.id], 1)
        yield info
        for name, source, says in _COUNTERS:
            if (value := _number(totals, source)) is not None:
                yield CounterMetricFamily(PREFIX + name, says, value=value)
        if (longest := _number(totals, "longest_sequence")) is not None:
            # Only grows, and llama.cpp's name for it has not the end that a counter's must have.
            says = "Tokens of the longest prompt with its reply so far."
            yield GaugeMetricFamily(f"{PREFIX}n_tokens_max", says, value=longest)
        for name, tokens, seconds in _RATES:
            yield from self._rate(name, _number(totals, tokens), _number(totals, seconds))
        yield from cache_metrics(PREFIX, totals)
        for histogram in (self._queue, self._first, self._latency):
            yield from histogram.collect()

    def _rate(self, name: str, tokens: float | None, seconds: float | None) -> Iterable[Metric]:
        """Tokens a second since the last scrape; 0 when there were none."""
        if tokens is None or seconds is None:
            return
        with self._lock:
            tokens_before, seconds_before = self._last.get(name, (0.0, 0.0))
            self._last[name] = tokens, seconds
        spent = seconds - seconds_before
        rate = (tokens - tokens_before) / spent if spent > 0 else 0.0
        yield GaugeMetricFamily(f"{PREFIX}{name}_tokens_seconds", "Tokens a second since the last scrape.", value=rate)


def _histogram(name: str, says: str, buckets: tuple[float, ...]) -> Histogram:
    return Histogram(PREFIX + name, f"{says} In seconds from its arrival.", buckets=buckets, registry=None)


def _number(totals: Mapping[str, JSON], name: str) -> float | None:
    value = totals.get(name)
    return float(value) if isinstance(value, int | float) else None

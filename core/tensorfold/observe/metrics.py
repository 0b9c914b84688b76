"""Prometheus metrics of one application, on a registry of its own.

Names under `tensorfold:` are ours; where vLLM has another name for the same reading, it stands beside it under the same
prefix and with identical values, so that a vLLM dashboard works when its prefix is swapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from tensorfold.contracts.engine import EngineStatus
from tensorfold.contracts.observe import Outcome
from tensorfold.ir import Request

__all__ = ["Metrics"]

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
"""Upper bounds of the histograms' buckets, in seconds."""


class Metrics:
    """Counts requests as an `Observer`, and reads the engine's state when it is scraped."""

    media_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, status: Callable[[], EngineStatus], collectors: Sequence[Collector] = ()) -> None:
        """`status` is asked at each scrape; `collectors` are plugins' own."""
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "tensorfold:requests",
            "Requests answered, by key label, endpoint and HTTP status.",
            ("label", "endpoint", "status"),
            registry=None,
        )
        self._prompt_tokens = Counter("tensorfold:prompt_tokens", "Prompt tokens of ended requests.", registry=None)
        self._generation_tokens = Counter(
            "tensorfold:generation_tokens", "Generated tokens of ended requests.", registry=None
        )
        self._latency = Histogram(
            "tensorfold:request_latency_seconds",
            "From a request's arrival to the end of its reply.",
            buckets=_SECONDS,
            registry=None,
        )
        self._first_token = Histogram(
            "tensorfold:time_to_first_token_seconds",
            "From a request's arrival to the first text of its reply.",
            buckets=_SECONDS,
            registry=None,
        )
        own: tuple[Collector, ...] = (
            self._requests,
            self._prompt_tokens,
            self._generation_tokens,
            self._latency,
            _Renamed(self._latency, "tensorfold:request_latency_seconds", "tensorfold:e2e_request_latency_seconds"),
            self._first_token,
            _EngineGauges(status),
        )
        for collector in (*own, *collectors):
            self._registry.register(_Guarded(collector))

    def started(self, request: Request, endpoint: str) -> None:
        """Nothing is counted before the end; what runs now the engine tells."""

    def ended(self, request: Request, endpoint: str, outcome: Outcome) -> None:
        """Count a request's tokens and times."""
        if outcome.usage is not None:
            self._prompt_tokens.inc(outcome.usage.prompt_tokens)
            self._generation_tokens.inc(outcome.usage.completion_tokens)
        self._latency.observe(outcome.seconds)
        if outcome.first_token_seconds is not None:
            self._first_token.observe(outcome.first_token_seconds)

    def answered(self, label: str, endpoint: str, status: int) -> None:
        """Count an answer; `endpoint` is the route's template, never a path as it was sent."""
        self._requests.labels(label, endpoint, str(status)).inc()

    def text(self) -> bytes:
        """What a scrape gets. A family that cannot be read is left out."""
        return generate_latest(self._registry)


class _EngineGauges(Collector):
    """Requests running and waiting, read at the scrape, so that they are never stale."""

    def __init__(self, status: Callable[[], EngineStatus]) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        status = self._status()
        for name in ("tensorfold:requests_running", "tensorfold:num_requests_running"):
            yield GaugeMetricFamily(name, "Requests that are being computed.", value=status.running)
        for name in ("tensorfold:requests_waiting", "tensorfold:num_requests_waiting"):
            yield GaugeMetricFamily(name, "Requests in the queue.", value=status.waiting)


class _Renamed(Collector):
    """The same readings under another name."""

    def __init__(self, source: Collector, name: str, renamed: str) -> None:
        self._source = source
        self._name = name
        self._renamed = renamed

    def collect(self) -> Iterable[Metric]:
        for metric in self._source.collect():
            copy = Metric(metric.name.replace(self._name, self._renamed), metric.documentation, metric.type)
            copy.samples = [
                Sample(sample.name.replace(self._name, self._renamed), *sample[1:]) for sample in metric.samples
            ]
            yield copy


class _Guarded(Collector):
    """One collector's failure leaves its families out, and the scrape goes on."""

    def __init__(self, source: Collector) -> None:
        self._source = source

    def collect(self) -> Iterable[Metric]:
        try:
            families = list(self._source.collect())
            for family in families:
                # When a counter began is a series of its own for each of its label sets, and no dashboard reads it.
                family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            return families
        except Exception:  # noqa: BLE001 - whatever a collector raises, the others are served
            structlog.get_logger().exception("a metric could not be read", collector=type(self._source).__name__)
            return []

"""Prometheus metrics of one application, on a registry of its own.

Names under `tensorfold:` are ours; where vLLM has another name for the same reading, it stands beside it under the same
prefix and with identical values, so that a vLLM dashboard works when its prefix is swapped. What the engine does not
count is left out: a permanent zero would be a lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from tensorfold.contracts.engine import EngineStatus
from tensorfold.contracts.observe import Outcome
from tensorfold.ir import JSON, Request

__all__ = ["FIRST_TOKEN_SECONDS", "LATENCY_SECONDS", "Metrics"]

LATENCY_SECONDS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
"""Upper bounds of a latency's buckets, in seconds; vLLM's."""
FIRST_TOKEN_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
"""The same of the time to the first token; vLLM's too."""

_PREFIX = "tensorfold:"


class Metrics:
    """Counts requests as an `Observer`, and reads the engine's state when it is scraped."""

    media_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, status: Callable[[], EngineStatus], collectors: Sequence[Collector] = ()) -> None:
        """`status` is asked at each scrape; `collectors` are plugins' own."""
        self._registry = CollectorRegistry()
        self._requests = Counter(
            f"{_PREFIX}requests",
            "Requests answered, by key label, endpoint and HTTP status.",
            ("label", "endpoint", "status"),
            registry=None,
        )
        self._prompt_tokens = Counter(f"{_PREFIX}prompt_tokens", "Prompt tokens of ended requests.", registry=None)
        self._generation_tokens = Counter(
            f"{_PREFIX}generation_tokens", "Generated tokens of ended requests.", registry=None
        )
        self._disconnections = Counter(
            f"{_PREFIX}client_disconnections", "Requests whose client left before the answer's end.", registry=None
        )
        self._latency = _histogram("request_latency_seconds", "From a request's arrival to the end of its reply.")
        self._decode = _histogram(
            "request_decode_seconds",
            "From a reply's first token to its end; with generation_tokens_total it gives the decode rate.",
        )
        self._first_token = _histogram(
            "time_to_first_token_seconds",
            "From a request's arrival to the first text of its reply.",
            FIRST_TOKEN_SECONDS,
        )
        own: tuple[Collector, ...] = (
            self._requests,
            self._prompt_tokens,
            self._generation_tokens,
            self._disconnections,
            self._latency,
            _Renamed(self._latency, "request_latency_seconds", "e2e_request_latency_seconds"),
            self._decode,
            _Renamed(self._decode, "request_decode_seconds", "request_decode_time_seconds"),
            self._first_token,
            *(_Reading(status, read) for read in _READINGS),
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
        if outcome.timings is not None:  # what was refused or failed has no reply, whose end could be waited for
            self._latency.observe(outcome.seconds)
        if outcome.first_token_seconds is not None:
            self._first_token.observe(outcome.first_token_seconds)
        if (decode := _decode_seconds(outcome)) is not None:
            self._decode.observe(decode)

    def answered(self, label: str, endpoint: str, status: int) -> None:
        """Count an answer; `endpoint` is the route's template, never a path as it was sent."""
        self._requests.labels(label, endpoint, str(status)).inc()

    def disconnected(self) -> None:
        """Count a client that left before its answer's end."""
        self._disconnections.inc()

    def text(self) -> bytes:
        """What a scrape gets. A family that cannot be read is left out."""
        return generate_latest(self._registry)


def _decode_seconds(outcome: Outcome) -> float | None:
    """The engine's own figure, or from the first token to the end; None: the reply did not finish."""
    if outcome.timings is None:
        return None
    if outcome.timings.decode or outcome.first_token_seconds is None:
        return outcome.timings.decode
    return outcome.seconds - outcome.first_token_seconds


def _histogram(name: str, help: str, buckets: Sequence[float] = LATENCY_SECONDS) -> Histogram:
    return Histogram(_PREFIX + name, help, buckets=buckets, registry=None)


# ---- what the engine tells ---------------------------------------------------------------------------------


def _requests_running(status: EngineStatus) -> Iterable[Metric]:
    return _gauges(("requests_running", "num_requests_running"), "Requests that are being computed.", status.running)


def _requests_waiting(status: EngineStatus) -> Iterable[Metric]:
    return _gauges(("requests_waiting", "num_requests_waiting"), "Requests in the queue.", status.waiting)


def _gauges(names: Sequence[str], help: str, value: float) -> Iterable[Metric]:
    for name in names:
        yield GaugeMetricFamily(_PREFIX + name, help, value=value)


def _drafted(status: EngineStatus) -> Iterable[Metric]:
    names = ("mtp_drafted", "spec_decode_num_draft_tokens")
    return _counters(names, "Draft tokens verified, of ended requests.", status.details.get("drafted_total"))


def _accepted(status: EngineStatus) -> Iterable[Metric]:
    names = ("mtp_accepted", "spec_decode_num_accepted_tokens")
    return _counters(names, "Draft tokens kept, of ended requests.", status.details.get("accepted_total"))


def _preemptions(status: EngineStatus) -> Iterable[Metric]:
    says = "Lanes that background work gave up to a later request."
    return _counters(("preemptions",), says, status.details.get("lanes_yielded_total"))


def _begun(status: EngineStatus) -> Iterable[Metric]:
    names = ("prompt_tokens_begun", "prefix_cache_queries")
    says = "Prompt tokens of requests that have begun."
    return _counters(names, says, status.details.get("prompt_tokens_begun_total"))


def _reused(status: EngineStatus) -> Iterable[Metric]:
    names = ("prompt_tokens_reused", "prefix_cache_hits")
    says = "Those of them that came from kept prompts and were not computed."
    return _counters(names, says, status.details.get("prompt_tokens_reused_total"))


def _evictions(status: EngineStatus) -> Iterable[Metric]:
    says = "Kept prompts that were given up for room."
    return _counters(("prefix_evictions",), says, status.details.get("prefix_evictions_total"))


def _counters(names: Sequence[str], help: str, value: JSON) -> Iterable[Metric]:
    if isinstance(value, int | float):
        for name in names:
            yield CounterMetricFamily(_PREFIX + name, help, value=value)


def _cache_usage(status: EngineStatus) -> Iterable[Metric]:
    pools = status.details.get("pools")
    if not isinstance(pools, dict) or not pools:
        return
    for name in ("kv_cache_usage_ratio", "kv_cache_usage_perc"):
        family = GaugeMetricFamily(
            _PREFIX + name, "What running requests hold of each pool of states, from 0 to 1.", labels=["pool"]
        )
        for pool, sizes in pools.items():
            if isinstance(sizes, Mapping) and (ratio := _ratio(sizes.get("used"), sizes.get("positions"))) is not None:
                family.add_metric([pool], ratio)
        yield family


def _ratio(part: JSON, whole: JSON) -> float | None:
    if isinstance(part, int | float) and isinstance(whole, int | float) and whole > 0:
        return part / whole
    return None


_READINGS = (
    _requests_running,
    _requests_waiting,
    _drafted,
    _accepted,
    _preemptions,
    _begun,
    _reused,
    _evictions,
    _cache_usage,
)


class _Reading(Collector):
    """One of the engine's readings under each of its names, read at the scrape, so that it is never stale."""

    def __init__(self, status: Callable[[], EngineStatus], read: Callable[[EngineStatus], Iterable[Metric]]) -> None:
        self._status = status
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read(self._status())


class _Renamed(Collector):
    """The same readings under another name."""

    def __init__(self, source: Collector, name: str, renamed: str) -> None:
        self._source = source
        self._name = _PREFIX + name
        self._renamed = _PREFIX + renamed

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

"""Prometheus metrics: names, readings, and that a bad one harms nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from tensorfold.contracts.engine import EngineStatus
from tensorfold.contracts.observe import Outcome
from tensorfold.ir import Request, TextPrompt, Timings, Usage
from tensorfold.observe import Metrics

REQUEST = Request(id="r", prompt=TextPrompt("x"))


def readings(metrics: Metrics) -> dict[str, float]:
    """Every sample without labels, by name."""
    families = text_string_to_metric_families(metrics.text().decode())
    return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}


def busy() -> EngineStatus:
    return EngineStatus(healthy=True, running=2, waiting=5)


def outcome(usage: Usage | None = None, first: float | None = 0.2) -> Outcome:
    return Outcome(200, "end", usage, Timings(), 1.5, first)


@pytest.mark.requirement("T-299")
def test_running_and_waiting_are_read_at_the_scrape_under_both_names() -> None:
    """`tensorfold:requests_running` and `tensorfold:requests_waiting`, and vLLM's names beside them."""
    now = [busy()]
    metrics = Metrics(lambda: now[0])
    for name in ("requests", "num_requests"):
        assert readings(metrics)[f"tensorfold:{name}_running"] == 2
        assert readings(metrics)[f"tensorfold:{name}_waiting"] == 5
    now[0] = EngineStatus(healthy=True)
    assert readings(metrics)["tensorfold:requests_running"] == 0


@pytest.mark.requirement("T-300")
def test_tokens_are_counted_when_requests_end() -> None:
    """`tensorfold:prompt_tokens_total` and `tensorfold:generation_tokens_total`."""
    metrics = Metrics(busy)
    for usage in (Usage(3, 4), Usage(10, 20), None):
        metrics.ended(REQUEST, "/x", outcome(usage))
    assert readings(metrics)["tensorfold:prompt_tokens_total"] == 13
    assert readings(metrics)["tensorfold:generation_tokens_total"] == 24


@pytest.mark.requirement("T-303", "T-304")
def test_latencies_are_histograms() -> None:
    """`tensorfold:request_latency_seconds` and `tensorfold:time_to_first_token_seconds`."""
    metrics = Metrics(busy)
    metrics.ended(REQUEST, "/x", outcome())
    metrics.ended(REQUEST, "/x", outcome(first=None))
    seen = readings(metrics)
    assert seen["tensorfold:request_latency_seconds_count"] == 2
    assert seen["tensorfold:request_latency_seconds_sum"] == 3.0
    assert seen["tensorfold:time_to_first_token_seconds_count"] == 1
    for suffix in ("count", "sum"):
        ours, theirs = "request_latency_seconds", "e2e_request_latency_seconds"
        assert seen[f"tensorfold:{theirs}_{suffix}"] == seen[f"tensorfold:{ours}_{suffix}"]


@pytest.mark.requirement("T-026")
def test_answers_are_counted_by_label_endpoint_and_status() -> None:
    """`tensorfold:requests_total` carries the key's label."""
    metrics = Metrics(busy)
    for status in (200, 200, 400):
        metrics.answered("alice", "/v1/models", status)
    text = metrics.text().decode()
    assert 'tensorfold:requests_total{endpoint="/v1/models",label="alice",status="200"} 2.0' in text
    assert 'tensorfold:requests_total{endpoint="/v1/models",label="alice",status="400"} 1.0' in text


class Foreign(Collector):
    """A plugin's collector."""

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("acme_boxes", "Boxes.", value=4)


class Broken(Collector):
    """Another one's."""

    def collect(self) -> Iterable[Metric]:
        raise ZeroDivisionError


def test_plugins_add_collectors_and_a_broken_one_is_left_out() -> None:
    seen = readings(Metrics(busy, [Broken(), Foreign()]))
    assert seen["acme_boxes"] == 4
    assert seen["tensorfold:requests_running"] == 2


def test_an_engine_that_cannot_tell_leaves_its_gauges_out() -> None:
    def gone() -> EngineStatus:
        raise RuntimeError("no engine")

    seen = readings(Metrics(gone))
    assert "tensorfold:requests_running" not in seen
    assert seen["tensorfold:prompt_tokens_total"] == 0


def test_two_applications_in_one_process_count_apart() -> None:
    one, other = Metrics(busy), Metrics(busy)
    one.ended(REQUEST, "/x", outcome(Usage(3, 4)))
    assert readings(other)["tensorfold:prompt_tokens_total"] == 0

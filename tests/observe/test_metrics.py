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
from tensorfold.ir import JSON, Request, TextPrompt, Timings, Usage
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


@pytest.mark.requirement("T-305", "T-306", "T-307")
def test_decode_time_is_the_engines_own_or_from_the_first_token_to_the_end() -> None:
    """`tensorfold:request_decode_seconds`, and the same under vLLM's `request_decode_time_seconds`."""
    metrics = Metrics(busy)
    metrics.ended(REQUEST, "/x", Outcome(200, "end", Usage(1, 2), Timings(0.1, 0.2, 0.75), 1.5, 0.5))
    metrics.ended(REQUEST, "/x", Outcome(200, "end", Usage(1, 2), Timings(), 1.5, 0.5))
    metrics.ended(REQUEST, "/x", Outcome(500, "server_error", None, None, 9.0, 0.5))
    seen = readings(metrics)
    for name in ("request_decode_seconds", "request_decode_time_seconds"):
        assert (seen[f"tensorfold:{name}_count"], seen[f"tensorfold:{name}_sum"]) == (2, 1.75)


def counting() -> EngineStatus:
    """An engine that counts drafts, lanes given up, and two pools of states."""
    pools: JSON = {"main": {"positions": 400, "used": 100}, "draft": {"positions": 40, "used": 30}}
    totals: dict[str, JSON] = {"drafted_total": 9, "accepted_total": 7, "lanes_yielded_total": 2, "pools": pools}
    kept: dict[str, JSON] = {
        "prompt_tokens_begun_total": 70,
        "prompt_tokens_reused_total": 50,
        "prefix_evictions_total": 3,
    }
    return EngineStatus(healthy=True, details=totals | kept)


@pytest.mark.requirement("T-302", "T-306", "T-307", "T-309")
def test_drafts_and_lanes_given_up_are_counters_under_both_names() -> None:
    """`mtp_drafted_total` and `mtp_accepted_total` with vLLM's names beside them; `preemptions_total`."""
    seen = readings(Metrics(counting))
    assert seen["tensorfold:mtp_drafted_total"] == seen["tensorfold:spec_decode_num_draft_tokens_total"] == 9
    assert seen["tensorfold:mtp_accepted_total"] == seen["tensorfold:spec_decode_num_accepted_tokens_total"] == 7
    assert seen["tensorfold:preemptions_total"] == 2


def test_what_kept_prompts_saved_is_counted_under_both_names() -> None:
    """In tokens, as vLLM's `prefix_cache_queries` and `prefix_cache_hits` are; and how many were given up."""
    seen = readings(Metrics(counting))
    assert seen["tensorfold:prompt_tokens_begun_total"] == seen["tensorfold:prefix_cache_queries_total"] == 70
    assert seen["tensorfold:prompt_tokens_reused_total"] == seen["tensorfold:prefix_cache_hits_total"] == 50
    assert seen["tensorfold:prefix_evictions_total"] == 3


@pytest.mark.requirement("T-301", "T-306", "T-307")
def test_the_use_of_each_pool_of_states_has_its_label() -> None:
    """`kv_cache_usage_ratio` has a `pool` label for each live cache, and `kv_cache_usage_perc` repeats it."""
    text = Metrics(counting).text().decode()
    for name in ("kv_cache_usage_ratio", "kv_cache_usage_perc"):
        assert f'tensorfold:{name}{{pool="main"}} 0.25\n' in text
        assert f'tensorfold:{name}{{pool="draft"}} 0.75\n' in text


@pytest.mark.requirement("T-298", "T-308", "T-309")
def test_what_an_engine_does_not_count_is_left_out_and_not_zero() -> None:
    """Drafts, preemptions and caches of an engine that does not tell them have no family; disconnections are counted."""
    metrics = Metrics(busy)
    text = metrics.text().decode()
    for name in ("mtp_drafted", "spec_decode", "preemptions", "kv_cache", "prefix_", "prompt_tokens_reused"):
        assert name not in text
    metrics.disconnected()
    assert readings(metrics)["tensorfold:client_disconnections_total"] == 1


@pytest.mark.requirement("T-297")
def test_each_family_is_read_by_itself() -> None:
    """One reading that fails takes no other with it, and each asks the engine anew."""
    asked: list[int] = []

    def odd() -> EngineStatus:
        asked.append(0)
        return EngineStatus(healthy=True, running=len(asked), details={"pools": 3, "drafted_total": "many"})

    seen = readings(Metrics(odd))
    assert seen["tensorfold:requests_running"] == 1
    assert len(asked) >= 4
    assert "tensorfold:requests_waiting" in seen and "tensorfold:mtp_drafted_total" not in seen


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

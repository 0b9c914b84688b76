"""The load generator's arithmetic; it runs against real servers in the end-to-end tests."""

from __future__ import annotations

import pytest

from tensorfold.cli.bench.load import Load
from tensorfold.cli.bench.measure import Sample
from tensorfold.cli.bench.report import Figures, as_json, percentile, table
from tensorfold.cli.bench.workload import Workload


def sample(sent: float, *pieces: float, ended: float, tokens: int) -> Sample:
    """A reply with pieces at these moments."""
    return Sample(sent=sent, ended=ended, prompt_tokens=10, reply_tokens=tokens, pieces=pieces)


def test_percentiles_lie_on_straight_lines_between_neighbours() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert [percentile(values, share) for share in (0, 0.5, 0.625, 1)] == [1, 3, 3.5, 5]
    assert percentile([7.0], 0.99) == 7


def test_times_of_one_reply_count_from_the_moment_it_was_sent() -> None:
    one = sample(10.0, 10.5, 10.7, 11.5, ended=11.6, tokens=5)
    assert one.first == pytest.approx(0.5)
    assert one.between == pytest.approx(0.25)
    assert one.whole == pytest.approx(1.6)
    assert sample(0.0, 1.0, ended=1.0, tokens=1).between is None


def test_figures_leave_failed_requests_out_and_say_why_they_failed() -> None:
    failed = Sample(sent=0.0, ended=9.0, problem="the server answers 503: full")
    load = Load((sample(0.0, 1.0, 2.0, ended=2.0, tokens=4), failed), seconds=2.0)
    figures = Figures.of("http://a:1", "m", [load, load])
    assert (figures.requests, figures.failed, figures.problems) == (4, 2, ("the server answers 503: full",))
    assert figures.tokens_per_second == 2.0
    assert figures.end_to_end_ms is not None
    assert figures.end_to_end_ms.p99 == 2000


def test_two_servers_are_compared_by_ratios_of_the_first_to_the_second() -> None:
    slow = Figures.of("http://a:1", "m", [Load((sample(0.0, 2.0, 4.0, ended=4.0, tokens=3),), 4.0)])
    fast = Figures.of("http://b:1", "m", [Load((sample(0.0, 1.0, 2.0, ended=2.0, tokens=3),), 2.0)])
    ratios = as_json([slow, fast])["ratios"]
    assert isinstance(ratios, dict)
    assert (ratios["reply tokens/s"], ratios["first token p50, ms"]) == (0.5, 2.0)
    lines = table([slow, fast]).splitlines()
    assert lines[0].split() == ["http://a:1", "http://b:1", "ratio"]
    assert lines[1].split() == ["requests", "answered", "1", "of", "1", "1", "of", "1"]
    assert "ratios" not in as_json([slow])


def test_prompts_differ_from_each_other_and_are_the_same_in_every_run() -> None:
    workload = Workload(endpoint="chat", seed=1)
    assert workload.text(0, 20) == Workload(endpoint="completions", seed=1).text(0, 20)
    assert len({workload.text(index, 20) for index in range(50)}) == 50
    assert workload.path == "/v1/chat/completions"
    assert workload.body("m", 3, 5)["seed"] == 4


def test_arrivals_of_an_open_loop_come_at_the_rate_and_are_the_same_in_every_run() -> None:
    moments = Workload(rate=4.0, requests=2000).arrivals()
    assert moments == sorted(moments)
    assert moments[-1] == pytest.approx(2000 / 4.0, rel=0.1)
    assert moments == Workload(rate=4.0, requests=2000).arrivals()

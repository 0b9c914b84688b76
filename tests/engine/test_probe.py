"""The trial of rows at the start: what it shows, and what the engine does where rows depend on each other."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tensorfold.compute.runner import Runner
from tensorfold.contracts.step import Step
from tensorfold.engine.probe import probe_rows
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Limits, Request, TokensPrompt
from tensorfold.testing.scripted import ScriptedDecoder, scripted_geometry, scripted_runner
from tensorfold.testing.toy_engine import answer, running, toy_engine


def runner(**fields: Any) -> Runner[Any]:
    return scripted_runner([], scripted_geometry(vocabulary=99, window=fields.pop("window", 256)), **fields)


def disturb(monkeypatch: pytest.MonkeyPatch, when: Any) -> None:
    """Rows of some steps get other bits: `when(step)` says which."""
    plain = ScriptedDecoder.forward

    def forward(self: ScriptedDecoder, ops: Any, step: Step[Any]) -> Any:
        hidden = plain(self, ops, step)
        return hidden ^ np.uint64(1) if step.kind == "rows" and when(step) else hidden

    monkeypatch.setattr(ScriptedDecoder, "forward", forward)


def test_independent_rows_pass_and_their_costs_are_known() -> None:
    """The runner is as it was: every lane and page is free."""
    own = runner()
    before = own.memory()
    found = probe_rows(own, 64, patience=None)
    assert (found.rows, found.tried, found.problem) == (64, 33, None)
    assert {1, 2, 8, 33} <= set(found.costs)
    assert own.memory() == before


@pytest.mark.parametrize(("wrong_from", "rows"), [(2, 1), (5, 3), (33, 13)])
def test_rows_that_depend_on_their_number_narrow_the_step(
    monkeypatch: pytest.MonkeyPatch, wrong_from: int, rows: int
) -> None:
    """The largest number of rows below the first that changed a bit."""
    disturb(monkeypatch, lambda step: step.rows >= wrong_from and len(step.segments) == 1)
    found = probe_rows(runner(), 64, patience=None)
    assert found.rows == rows
    assert found.problem is not None and f"when {wrong_from} rows share" in found.problem


def test_sequences_that_see_each_other_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    disturb(monkeypatch, lambda step: len(step.segments) > 1)
    found = probe_rows(runner(), 64, patience=None)
    assert found.rows == 1
    assert found.problem is not None and "another sequence" in found.problem


@pytest.mark.parametrize(("step", "tried"), [(0.04, 33), (0.05, 13), (0.09, 8), (0.2, 0), (30.0, 0)])
def test_a_slow_machine_is_not_tried_for_ever(step: float, tried: int) -> None:
    """Within a second, as far as steps of so many seconds go; what was not tried is taken at the backend's word."""
    clock = SimpleNamespace(now=0.0)

    def run(_: Step[Any]) -> None:
        clock.now += step

    own = runner(on_step=run)
    found = probe_rows(own, 64, clock=lambda: clock.now)
    assert (found.rows, found.tried, found.problem) == (64, tried, None)
    assert found.costs[1] == pytest.approx(step)
    assert clock.now <= 1.0 + 10 * step
    assert own.memory() == runner().memory()


@pytest.mark.parametrize("fields", [{"lanes": 1}, {"window": 64}, {"chunk": 7}, {"positions": 64}])
def test_small_servers_are_tried_as_far_as_they_go(fields: Any) -> None:
    """One lane, a window or a memory too short for the trial, chunks shorter than its prompts."""
    assert probe_rows(runner(**fields), 64).rows == 64


def test_no_more_rows_share_a_step_than_the_trial_allows() -> None:
    """Replies take turns, drafts fill what is left, and all of them end as they would alone."""
    widths: list[int] = []

    def note(step: Step[Any]) -> None:
        if step.kind == "rows":
            widths.append(step.rows)

    requests = [
        Request(
            id=str(number), prompt=TokensPrompt((40, 41, 42, number)), limits=Limits(max_tokens=20, ignore_eos=True)
        )
        for number in range(50, 56)
    ]

    async def main(rows: int) -> list[str]:
        engine = toy_engine(lanes=8, on_step=note, wrong=0, settings=EngineSettings(rows=rows))
        async with running(engine):
            answers = await asyncio.gather(*(answer(engine, each) for each in requests))
            return [each.token_sha[0] for each in answers]

    expected = asyncio.run(main(64))
    for rows in (1, 2, 5):
        widths.clear()
        assert asyncio.run(main(rows)) == expected
        assert max(widths) <= rows

"""The scripted backend under the real Runner."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorfold.compute.runner import Output, Runner
from tensorfold.contracts.backend import BackendSettings
from tensorfold.contracts.sampling import Draw, SamplingRule
from tensorfold.contracts.step import Segment
from tensorfold.testing.scripted import Script, ScriptedBackend, Stall, raises, scripted_geometry, scripted_runner, slow

PROMPT, REPLY = (3, 1, 4, 1, 5), (9, 2, 6, 5, 3, 5)
GEOMETRY = scripted_geometry(vocabulary=12, stop_ids=frozenset({0}))
GREEDY = SamplingRule(temperature=0.0)
WILD = SamplingRule(temperature=100.0, repetition_penalty=1.5, presence_penalty=50.0, logit_bias=((7, 90.0),))


def draw(runner: Runner[Any], output: Output[Any], rule: SamplingRule = GREEDY) -> list[int]:
    """What each row of an output gives."""
    counts = dict.fromkeys(range(12), 3)
    draws = [Draw(row=row, key=7, position=row, rule=rule, counts=counts) for row in range(output.rows)]
    return [drawn.token for drawn in runner.sample(output, draws)]


def prefilled(runner: Runner[Any], tokens: tuple[int, ...] = PROMPT) -> int:
    slot = runner.acquire()
    assert slot is not None
    runner.forward([Segment(slot, tokens, 0, "none", "chunk")])
    runner.commit(slot, len(tokens))
    return slot


@pytest.mark.parametrize("rule", [GREEDY, SamplingRule(), WILD])
def test_a_script_is_emitted_whatever_the_sampling(rule: SamplingRule) -> None:
    """Greedy, sampled, penalized and biased draws all give the script's tokens, and its end token behind them."""
    runner = scripted_runner([Script(PROMPT, REPLY)], GEOMETRY)
    slot = prefilled(runner, PROMPT[:-1])
    output = runner.forward([Segment(slot, (PROMPT[-1], *REPLY), len(PROMPT) - 1, "all")])
    assert draw(runner, output, rule) == [*REPLY, 0]


def test_a_token_that_was_not_emitted_leads_away_from_the_script() -> None:
    """The rows behind a wrong token give something else, so that a wrong token cannot go unnoticed."""
    runner = scripted_runner([Script(PROMPT, REPLY)], GEOMETRY)
    slot = prefilled(runner)
    output = runner.forward([Segment(slot, (9, 2, 7, 5, 3), len(PROMPT), "all")])
    assert draw(runner, output)[:2] == [2, 6]
    assert runner.logits(output, [3, 4]).max() < 1000, "no scripted row"


def test_states_go_back_are_shared_and_are_restored() -> None:
    """A partial commit, a fork and a snapshot each continue the script from their own place."""
    runner = scripted_runner([Script(PROMPT, REPLY)], GEOMETRY)
    slot = prefilled(runner)
    runner.forward([Segment(slot, (9, 8, 8), 5, "all")])
    runner.commit(slot, 6)
    fork = runner.fork(slot)
    kept = runner.snapshot(slot)
    assert fork is not None
    both = runner.forward([Segment(slot, (2,), 6, "all"), Segment(fork, (11,), 6, "all")])
    assert draw(runner, both)[0] == 6
    runner.commit(slot, 7)
    runner.commit(fork, 7)
    runner.restore(fork, kept)
    assert draw(runner, runner.forward([Segment(fork, (2,), 6, "all")])) == [6]
    runner.commit(fork, 7)
    copy = runner.import_(runner.export(kept))
    runner.restore(slot, copy)
    assert draw(runner, runner.forward([Segment(slot, (2,), 6, "all")])) == [6]


def test_rows_do_not_see_each_other() -> None:
    """The same rows alone and among others give the same logits, on and off the script."""
    runner = scripted_runner([Script(PROMPT, REPLY)], GEOMETRY)
    first, second = prefilled(runner), prefilled(runner, (1, 2))
    alone = runner.logits(runner.forward([Segment(second, (5, 6), 2, "all")]), [0, 1])
    runner.abandon(second)
    output = runner.forward([Segment(first, (9,), 5, "all"), Segment(second, (5, 6), 2, "all")])
    assert np.array_equal(runner.logits(output, [1, 2]), alone)


def test_steps_fail_stall_and_dawdle_where_the_script_says() -> None:
    """At the row that the token is drawn from, inside the prompt for negative places; and rows that are no numbers."""
    stall = Stall()
    stall.release.set()
    acts: dict[int, Callable[[], None]] = {-2: slow(0.01), 0: stall, 2: raises(RuntimeError("told to"))}
    runner = scripted_runner([Script(PROMPT, REPLY, at=acts, nan_at=1)], GEOMETRY)
    slot = runner.acquire()
    assert slot is not None
    began = time.monotonic()
    runner.forward([Segment(slot, PROMPT[:4], 0, "none", "chunk")])
    assert time.monotonic() - began >= 0.01
    assert not stall.entered.is_set()
    runner.commit(slot, 4)
    output = runner.forward([Segment(slot, (PROMPT[-1], 9), 4, "all")])
    assert stall.entered.is_set()
    assert np.isnan(runner.logits(output, [0, 1])).all(axis=1).tolist() == [False, True]
    runner.commit(slot, 6)
    with pytest.raises(RuntimeError, match="told to"):
        runner.forward([Segment(slot, (2,), 6, "all")])
    runner.abandon(slot)
    assert runner.length(slot) == 6


def test_it_is_a_backend_that_never_runs_unasked() -> None:
    """Its score is below every other, and closing its runner is seen."""
    backend = ScriptedBackend()
    assert backend.probe().score < 0
    session = backend.open(BackendSettings())
    assert (session.device, session.dtype) == ("a script", "float32")
    assert session.memory().available > 0

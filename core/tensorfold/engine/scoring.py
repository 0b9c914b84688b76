"""Scores: log-probabilities of continuations, read behind a prompt that is computed once.

First tokens are all read from the prompt's last row. The rest of each continuation runs as rows behind the prompt, on
the prompt's own slot and on forks of it, a step a turn, and none of these rows is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.runner import Output
from tensorfold.contracts.step import Segment
from tensorfold.engine.active import ActiveRequest, Entry
from tensorfold.engine.steps import Steps, slot_of
from tensorfold.errors import GenerationFailed, OutOfPages

__all__ = ["ROWS", "Scoring"]

ROWS = 64
"""The most rows of one step, unless a single continuation has more."""


class Scoring:
    """Scores continuations on the engine thread."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def begin(self, entry: Entry, output: Output[Any]) -> None:
        """The prompt is computed: every first token is read from its last row."""
        active = entry.active
        (row,) = _log_softmax(self._steps.runner.logits(output, [output.rows - 1]))
        active.top = int(np.argmax(row))
        for ids in active.job.scored:
            active.scores[ids] = [float(row[ids[0]])]
        self._finish_if_done(entry)

    def go_on(self, entry: Entry) -> None:
        """One step for further continuations."""
        active = entry.active
        with self._steps.roster.guarded("scoring its labels", [active]):
            batch = _batch(active.unscored)
            forks = self._forks(entry, len(batch) - 1)
            try:
                scored = self._step(active, [slot_of(entry), *forks], batch[: len(forks) + 1])
            finally:
                for fork in forks:
                    self._steps.runner.release(fork)
            if not scored:
                self._alone(entry, batch[0])
            self._finish_if_done(entry)

    def _forks(self, entry: Entry, wanted: int) -> list[int]:
        """As many as there are lanes that nobody waits for."""
        forks: list[int] = []
        while len(forks) < wanted and not self._steps.scheduler.waiting:
            fork = self._steps.runner.fork(slot_of(entry))
            if fork is None:
                break
            forks.append(fork)
        return forks

    def _alone(self, entry: Entry, ids: tuple[int, ...]) -> None:
        """One continuation on the prompt's own slot, in whatever room kept prefixes leave when they are given up.

        Raises:
            GenerationFailed: there is none.
        """
        while not self._step(entry.active, [slot_of(entry)], [ids]):
            if not self._steps.prefixes.free_some():
                raise GenerationFailed("the state memory has no room for this request's labels: shorten its prompt")

    def _step(self, active: ActiveRequest, slots: Sequence[int], batch: Sequence[tuple[int, ...]]) -> bool:
        """Score these continuations; False: there was no room, and nothing was changed."""
        runner, start = self._steps.runner, len(active.job.ids)
        segments = [Segment(slot, ids[:-1], start, want="all") for slot, ids in zip(slots, batch, strict=True)]
        try:
            output = runner.forward(segments)
        except OutOfPages:
            return False
        rows = _log_softmax(runner.logits(output, range(output.rows)))
        for (first, _), slot, ids in zip(output.bounds, slots, batch, strict=True):
            active.scores[ids] += [float(rows[first + place, token]) for place, token in enumerate(ids[1:])]
            runner.commit(slot, start)
        return True

    def _finish_if_done(self, entry: Entry) -> None:
        active = entry.active
        if active.unscored:
            if entry not in self._steps.scheduler.prefilling:
                raise GenerationFailed("the engine lost the turn of this request")
            return
        active.stream.scores = active.scores
        active.stream.top = active.top
        active.first_token(self._steps.clock())
        self._steps.roster.finish(active)


def _batch(continuations: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The first of them, as many as share a step."""
    batch: list[tuple[int, ...]] = []
    rows = 0
    for ids in continuations:
        rows += len(ids) - 1
        if batch and rows > ROWS:
            break
        batch.append(ids)
    return batch


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """`[N, V]` in float64, as log-probabilities are read everywhere.

    Raises:
        GenerationFailed: a logit is not finite.
    """
    raw = logits.astype(np.float64)
    if np.isnan(raw).any() or np.isposinf(raw).any():
        raise GenerationFailed("the model's logits are not finite")
    largest = raw.max(axis=1, keepdims=True)
    normalized: NDArray[np.float64] = raw - (largest + np.log(np.exp(raw - largest).sum(axis=1, keepdims=True)))
    return normalized

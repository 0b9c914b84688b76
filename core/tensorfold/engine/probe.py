"""A trial at the start, on the real weights: do rows depend on their company, and what does a step of them cost?

A reply must not depend on who shares its steps. The backend's own tests say that it does not; this asks the machine at
hand, with the model at hand, and where the answer is no, fewer rows share a step from the start.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.runner import Runner
from tensorfold.contracts.step import Segment
from tensorfold.errors import BackendError

__all__ = ["Independence", "probe_rows"]

WIDTHS = (2, 3, 5, 8, 13, 33)
"""Rows of a step, in the order in which they are tried."""
TOGETHER = 8
"""Behind so many rows of one sequence, two sequences are tried together."""
SERIAL = 4
"""Rows whose bits are compared: those that were computed one by one."""
PATIENCE = 1.0
"""Seconds after which nothing further is begun, unless everything is to be tried; a backend's own tests go further."""
PROMPTS = (48, 29)
"""Tokens before them, of each of two sequences."""


@dataclass(frozen=True, slots=True)
class Independence:
    """What the trial has shown."""

    rows: int
    """The most rows that may share a step."""
    tried: int = 0
    """The most rows that were tried and found independent; 0: nothing was tried."""
    costs: Mapping[int, float] = field(default_factory=dict[int, float])
    """Seconds of a step, by rows."""
    problem: str | None = None
    """Why it is not as many as the server would take; None: it is."""


def probe_rows(
    runner: Runner[Any],
    most: int,
    *,
    patience: float | None = PATIENCE,
    clock: Callable[[], float] = time.perf_counter,
) -> Independence:
    """Try steps of up to `most` rows. The runner holds no sequence, before and after.

    `patience` is in seconds of `clock`; None: everything is tried. What is not tried, and a model whose window is too
    short for the trial, is taken at the backend's word.
    """
    if runner.geometry.window <= PROMPTS[0] + max(WIDTHS) or runner.room() <= PROMPTS[0] + max(WIDTHS):
        return Independence(most)
    trial = _Trial(runner, clock, patience)
    try:
        return trial.run(most)
    finally:
        trial.close()


class _Trial:
    """Two sequences behind their prompts, and the rows that follow, one by one."""

    def __init__(self, runner: Runner[Any], clock: Callable[[], float], patience: float | None) -> None:
        self._runner = runner
        self._clock = clock
        self._end = math.inf if patience is None else clock() + patience
        vocabulary = runner.geometry.vocabulary
        drawn = np.random.default_rng(0).integers(0, vocabulary, sum(PROMPTS) + max(WIDTHS))
        self._tokens = tuple(int(token) for token in drawn)
        self._slots: list[int] = []
        self._costs: dict[int, float] = {}

    def run(self, most: int) -> Independence:
        """Wider and wider steps of one sequence, and in between two sequences together."""
        serial = self._begin(0)
        proven = tried = 1
        for width in (width for width in WIDTHS if width <= most):
            if self._late:
                break
            (wide,) = self._rows([(0, width)])
            compared = min(width, len(serial))
            if not np.array_equal(wide[:compared], serial[:compared]):
                problem = f"a row's bits change when {width} rows share a step"
                return Independence(proven, proven, self._costs, problem)
            proven = tried = width
            if width == TOGETHER and not self._late and self._runner.memory().lanes_free:
                if not self._independent(serial):
                    return Independence(1, 1, self._costs, "a row's bits change when another sequence shares the step")
                tried = 2 * SERIAL
        self._measure([width for width in WIDTHS if width <= proven])
        return Independence(most, tried if tried > 1 else 0, self._costs)

    @property
    def _late(self) -> bool:
        return self._clock() > self._end

    def _independent(self, serial: NDArray[np.float32]) -> bool:
        """Whether two sequences that share a step, in either order, are what each is alone."""
        alone = (serial, self._begin(1))
        for order in ((0, 1), (1, 0)):
            together = self._rows([(place, SERIAL) for place in order])
            for place, rows in zip(order, together, strict=True):
                if not np.array_equal(rows[: len(alone[place])], alone[place]):
                    return False
        return True

    def _begin(self, place: int) -> NDArray[np.float32]:
        """`[n, V]`, n up to SERIAL: the rows behind a fresh sequence's prompt, each in a step of its own.

        The sequence stands at its prompt's end then.
        """
        slot = self._runner.acquire()
        if slot is None:
            raise BackendError("the trial of rows found no lane in an engine that runs nothing")
        self._slots.append(slot)
        start = PROMPTS[place]
        self._prefill(slot, start)
        prompt = self._runner.snapshot(slot)
        rows: list[NDArray[np.float32]] = []
        for number in range(SERIAL):
            began = self._clock()
            output = self._runner.forward([Segment(slot, (self._tokens[start + number],), start + number, want="all")])
            rows.append(self._runner.logits(output, [0]))
            self._runner.commit(slot, start + number + 1)
            self._cost(1, self._clock() - began)
            if self._late:
                break
        self._runner.restore(slot, prompt)
        self._runner.drop(prompt)
        return np.concatenate(rows)

    def _prefill(self, slot: int, length: int) -> None:
        step = self._runner.chunk
        for start in range(0, length, step):
            ids = self._tokens[start : min(start + step, length)]
            self._runner.forward([Segment(slot, ids, start, want="none", kind="chunk")])
            self._runner.commit(slot, start + len(ids))

    def _rows(self, wanted: Sequence[tuple[int, int]]) -> list[NDArray[np.float32]]:
        """`[n, V]` for each (sequence, rows), all in one step that leaves no trace."""
        segments = [
            Segment(self._slots[place], self._tokens[PROMPTS[place] :][:count], PROMPTS[place], want="all")
            for place, count in wanted
        ]
        began = self._clock()
        output = self._runner.forward(segments)
        rows = self._runner.logits(output, range(output.rows))
        self._cost(output.rows, self._clock() - began)
        for segment in segments:
            self._runner.commit(segment.slot, segment.start)
        return [rows[first:last] for first, last in output.bounds]

    def _measure(self, widths: Sequence[int]) -> None:
        """Once more, for what it costs: the first step of a width warms up."""
        for width in widths:
            if self._late:
                break
            self._rows([(0, width)])

    def _cost(self, rows: int, seconds: float) -> None:
        self._costs[rows] = min(seconds, self._costs.get(rows, seconds))

    def close(self) -> None:
        """Give the slots back."""
        for slot in self._slots:
            self._runner.release(slot)

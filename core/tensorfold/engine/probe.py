"""A trial at the start, on the real weights: do rows depend on their company, and what does a step of them cost?

A reply must not depend on who shares its steps. The backend's own tests say that it does not; this asks the machine at
hand, with the model at hand, and where the answer is no, fewer rows share a step from the start.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.runner import Runner
from tensorfold.contracts.step import Segment

__all__ = ["Independence", "probe_rows"]

WIDTHS = (2, 3, 5, 8, 13, 33)
"""Rows of a step, in the order in which they are tried."""
SERIAL = 4
"""Rows whose bits are compared: those that were computed one by one."""
TWICE = 8
"""Steps of up to so many rows run twice, so that the first one's warming up is not taken for their cost."""
PATIENCE = 5.0
"""Seconds after which nothing further is tried; a backend's own tests go further."""
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


def probe_rows(runner: Runner[Any], most: int) -> Independence:
    """Try steps of up to `most` rows. The runner holds no sequence, before and after.

    A model whose window is too short for the trial is taken at the backend's word.
    """
    if runner.geometry.window <= PROMPTS[0] + max(WIDTHS) or runner.room() <= PROMPTS[0] + max(WIDTHS):
        return Independence(most)
    trial = _Trial(runner)
    try:
        return trial.run(most)
    finally:
        trial.close()


class _Trial:
    """Two sequences behind their prompts, and the rows that follow, one by one."""

    def __init__(self, runner: Runner[Any]) -> None:
        self._runner = runner
        vocabulary = runner.geometry.vocabulary
        drawn = np.random.default_rng(0).integers(0, vocabulary, sum(PROMPTS) + max(WIDTHS))
        self._tokens = tuple(int(token) for token in drawn)
        self._slots: list[int] = []
        for prompt in PROMPTS:
            slot = runner.acquire()
            if slot is not None:
                self._slots.append(slot)
                self._prefill(slot, prompt)
        self._costs: dict[int, float] = {}

    def _prefill(self, slot: int, length: int) -> None:
        step = self._runner.chunk
        for start in range(0, length, step):
            ids = self._tokens[start : min(start + step, length)]
            self._runner.forward([Segment(slot, ids, start, want="none", kind="chunk")])
            self._runner.commit(slot, start + len(ids))

    def run(self, most: int) -> Independence:
        """Two sequences together, then widths of one."""
        began, proven = time.perf_counter(), 1
        serial = self._serial(0)
        if len(self._slots) > 1 and most >= 2 * SERIAL:
            both = (serial, self._serial(1))
            for order in ((0, 1), (1, 0)):
                together = self._rows([(place, SERIAL) for place in order])
                if not all(np.array_equal(rows, both[place]) for rows, place in zip(together, order, strict=True)):
                    return Independence(1, 1, self._costs, "a row's bits change when another sequence shares the step")
        for width in (width for width in WIDTHS if width <= most):
            if time.perf_counter() - began > PATIENCE:
                break
            (wide,) = self._rows([(0, width)])
            compared = min(width, SERIAL)
            if not np.array_equal(wide[:compared], serial[:compared]):
                problem = f"a row's bits change when {width} rows share a step"
                return Independence(proven, proven, self._costs, problem)
            proven = width
        return Independence(most, proven, self._costs)

    def _serial(self, place: int) -> NDArray[np.float32]:
        """`[SERIAL, V]`: each row in a step of its own."""
        slot, start = self._slots[place], PROMPTS[place]
        rows: list[NDArray[np.float32]] = []
        for number in range(SERIAL):
            began = time.perf_counter()
            token = self._tokens[start + number]
            output = self._runner.forward([Segment(slot, (token,), start + number, want="all")])
            rows.append(self._runner.logits(output, [0]))
            self._runner.commit(slot, start + number + 1)
            self._cost(1, time.perf_counter() - began)
        self._reset(place)
        return np.concatenate(rows)

    def _reset(self, place: int) -> None:
        """Back to the prompt's end: what was committed cannot be taken back, so the prompt is computed again."""
        slot = self._slots[place]
        self._runner.release(slot)
        fresh = self._runner.acquire()
        if fresh is not None:
            self._slots[place] = fresh
            self._prefill(fresh, PROMPTS[place])

    def _rows(self, wanted: Sequence[tuple[int, int]]) -> list[NDArray[np.float32]]:
        """`[n, V]` for each (sequence, rows), all in one step that leaves no trace."""
        segments = [
            Segment(self._slots[place], self._tokens[PROMPTS[place] :][:count], PROMPTS[place], want="all")
            for place, count in wanted
        ]
        found: list[NDArray[np.float32]] = []
        for _ in range(2 if sum(count for _, count in wanted) <= TWICE else 1):
            began = time.perf_counter()
            output = self._runner.forward(segments)
            rows = self._runner.logits(output, range(output.rows))
            self._cost(output.rows, time.perf_counter() - began)
            for segment in segments:
                self._runner.commit(segment.slot, segment.start)
            found = [rows[first:last] for first, last in output.bounds]
        return found

    def _cost(self, rows: int, seconds: float) -> None:
        self._costs[rows] = min(seconds, self._costs.get(rows, seconds))

    def close(self) -> None:
        """Give the slots back."""
        for slot in self._slots:
            self._runner.release(slot)

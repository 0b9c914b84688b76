"""Fixed-size states that kernels read and write where they are: convolutions' last inputs, recurrences.

A slot's state is a block. A Step reads it and leaves the state after all of its rows in another block, which becomes
the slot's when all are kept; when some are, the state after those is computed anew from the block before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.store import fixed_shape
from tensorfold.contracts.states import Conv, Recurrent
from tensorfold.contracts.step import Step
from tensorfold.errors import BackendError
from tensorfold_backend_cpu.cells import Cell
from tensorfold_backend_cpu.kernels.recurrent import RUN_WORDS
from tensorfold_backend_cpu.machine import Machine
from tensorfold_backend_cpu.memory import Memory
from tensorfold_backend_cpu.rows import Rows
from tensorfold_backend_cpu.taping import MOST_ROWS

__all__ = ["Replay", "SlotCell", "Span", "lasting"]


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of one sequence in a Step, and its state before them."""

    first: int
    rows: int
    before: Memory


Replay: TypeAlias = Callable[[Span, Memory], None]
"""Leave the state after these rows in a block, from the inputs of the Step; what is recorded has run."""


@dataclass(slots=True, eq=False)
class _Open:
    """Rows that wait to be kept."""

    span: Span
    after: Memory
    replay: Replay | None = None


def lasting(step: Step[Rows]) -> bool:
    """Whether inputs of a Step have to stay where a tape finds them, until the next Step comes.

    Those of a single row are never needed again, and a Step of many rows is not taped.
    """
    return 1 < step.rows <= MOST_ROWS


class SlotCell(Cell):
    """One state of every slot; what a Step's calls read of it is behind its words."""

    def __init__(self, machine: Machine, spec: Conv | Recurrent, slots: int) -> None:
        super().__init__(machine, 2)
        self.spec = spec
        self.shape = fixed_shape(spec)[0]
        self._size = 4 * math.prod(self.shape)
        self._states = [Memory(self._size) for _ in range(slots)]
        self._spare: list[Memory] = []
        self._open: dict[int, _Open] = {}
        self._replays: dict[int, Replay] = {}
        self._inputs: dict[str, tuple[int, Memory]] = {}
        self._pieces = 1

    # ---- for operations --------------------------------------------------------------------------------------

    @property
    def runs(self) -> int:
        """Address of the word for the sequences, as kernels have them."""
        return self.at(0)

    @property
    def items(self) -> int:
        """Address of the number of pieces of work."""
        return self.at(1)

    def begin(self, step: Step[Rows], pieces: int) -> None:
        """Point to a Step's sequences, each of which is so many pieces of work, and leave their rows open."""
        self._pieces = pieces
        self.refresh(step)

    def update(self, step: Step[Rows]) -> None:
        """New blocks for the states after the rows."""
        self._detach()
        words: list[tuple[int, int, int, int]] = []
        replay = self._replays.get(step.rows)
        for segment, (first, last) in zip(step.segments, step.bounds, strict=True):
            if segment.slot in self._open:
                raise BackendError(f"slot {segment.slot} has open rows in a state: commit them before the next step")
            span = Span(first, last - first, self._states[segment.slot])
            after = self._spare.pop() if self._spare else Memory(self._size)
            self._open[segment.slot] = _Open(span, after, replay)
            words.append((first, span.rows, span.before.address, after.address))
        self.point(0, np.asarray(words, np.int64).reshape(-1, RUN_WORDS))
        self.words[1] = len(words) * self._pieces

    def lasting(self, name: str, step: Step[Rows], *shape: int) -> Rows:
        """Floats `[R, *shape]` for an input of the calls: memory of the state's own for a Step whose inputs last."""
        rows = step.rows
        if not lasting(step):
            return Rows.new(self._machine, (rows, *shape))
        size = 4 * MOST_ROWS * math.prod(shape)
        known, memory = self._inputs.get(name, (0, None))
        if memory is None or known != size:
            memory = Memory(size)
            self._inputs[name] = size, memory
        return Rows(self._machine, (rows, *shape), np.dtype(np.float32), memory.bytes, memory.address)

    def replayed_by(self, step: Step[Rows], replay: Replay) -> None:
        """How rows of this Step, and of later ones with as many that a tape is played for, are computed again."""
        if lasting(step):
            self._replays[step.rows] = replay
        for segment in step.segments:
            self._open[segment.slot].replay = replay

    def forget(self, step: Step[Rows]) -> None:
        """The rows of a Step that was only recorded."""
        if self.shows(step):
            for segment in step.segments:
                self._drop(segment.slot)

    def _detach(self) -> None:
        """Rows that still wait when the next Step comes, which will overwrite their inputs: all that may be kept of
        them is computed. Whoever keeps what it wants before it goes on is not kept waiting by this."""
        for opened in self._open.values():
            replay, span = opened.replay, opened.span
            if replay is None or span.rows == 1:
                continue
            self._machine.run()
            states = [Memory(self._size) for _ in range(1, span.rows)]
            for rows, state in enumerate(states, 1):
                replay(Span(span.first, rows, span.before), state)
            opened.replay = partial(_copied, states)

    # ---- for the core ----------------------------------------------------------------------------------------

    def commit(self, slot: int, kept: int) -> None:
        """Keep the first `kept` open rows; a slot without any stays as it is."""
        opened = self._open.get(slot)
        if opened is None:
            return
        if kept and kept < opened.span.rows:
            if opened.replay is None:
                raise BackendError("open rows cannot be computed again: their inputs are not known")
            self._machine.run()
            opened.replay(Span(opened.span.first, kept, opened.span.before), opened.after)
        if kept:
            # The block before takes the place of the one that becomes the state.
            self._states[slot], opened.after = opened.after, self._states[slot]
        self._drop(slot)

    def reset(self, slot: int) -> None:
        """Zeros; open rows are dropped."""
        self._drop(slot)
        self._machine.run()
        self._states[slot].bytes[:] = 0

    def read(self, slot: int) -> NDArray[np.float32]:
        """A copy.

        Raises:
            BackendError: rows are open.
        """
        if slot in self._open:
            raise BackendError(f"slot {slot} has open rows in a state: commit them before it is saved")
        self._machine.run()
        return self._states[slot].array(np.float32, *self.shape).copy()

    def write(self, slot: int, values: NDArray[np.float32]) -> None:
        """The slot's state becomes this; open rows are dropped."""
        self._drop(slot)
        self._machine.run()
        self._states[slot].array(np.float32, *self.shape)[:] = values

    def _drop(self, slot: int) -> None:
        opened = self._open.pop(slot, None)
        if opened is not None:
            self._spare.append(opened.after)


def _copied(states: Sequence[Memory], span: Span, into: Memory) -> None:
    into.bytes[:] = states[span.rows - 1].bytes

"""Calls of a step, recorded once and played again: what differs in a later step is where its rows are.

Calls refer to a step's inputs, to its result and to what is between, to weights, states and cells. Weights, states and
cells stay where they are; so does what is between, for it lies in a pool that tapes alone use, one after the other. A
later step refreshes its cells, and the addresses of its inputs and its result take the place of the recorded ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tensorfold_backend_cpu.machine import Lines, Machine
from tensorfold_backend_cpu.memory import Buffer
from tensorfold_backend_cpu.rows import Rows

__all__ = ["MOST_ROWS", "Tape", "record"]

MOST_ROWS: Final = 64
"""Of a step that is recorded: of a larger one, Python is a small part."""

_LEAST_ADDRESS: Final = 1 << 32
"""No count and no stride of a call is so large, and no float's bits are so small, that it is taken for an address."""


class _Spot:
    """The words of a tape that point into one block of memory."""

    def __init__(self, words: NDArray[np.int64], address: int, size: int) -> None:
        self._words = words
        self._places = np.flatnonzero((words >= address) & (words < address + size))
        self._address = address

    def move(self, address: int) -> None:
        """The block is there now."""
        if address != self._address:
            self._words[self._places] += address - self._address
            self._address = address


@dataclass(frozen=True, slots=True)
class _Result:
    """How the rows lie that the calls compute."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    offset: int
    """In their block."""
    stride: int
    size: int
    """Of the block."""


class Tape:
    """Calls over inputs of certain shapes."""

    def __init__(self, machine: Machine, lines: Lines, inputs: Sequence[Rows], result: Rows, block: Buffer) -> None:
        """`block` is where the result lies, and lent by the pool for tapes."""
        self._machine = machine
        self._lines = lines
        memory = block.memory
        size = len(memory.bytes)
        self._inputs = [_Spot(lines.words, each.address, each.extent) for each in inputs]
        self._output = _Spot(lines.words, memory.address, size)
        self._result = _Result(result.shape, result.dtype, result.address - memory.address, result.stride, size)
        self._played = -1

    def play(self, inputs: Sequence[Rows]) -> Rows:
        """Record the calls over these inputs; gives what they will have computed."""
        machine, result = self._machine, self._result
        if self._played == machine.runs:
            # The calls still wait to be run over the inputs before.
            machine.run()
        self._played = machine.runs
        for spot, rows in zip(self._inputs, inputs, strict=True):
            spot.move(rows.address)
        block = machine.pool.take(result.size)
        address = block.memory.address
        self._output.move(address)
        machine.calls(self._lines, *(each.owner for each in inputs))
        return Rows(machine, result.shape, result.dtype, block, address + result.offset, result.stride)


def record(machine: Machine, inputs: Sequence[Rows], compute: Callable[[], Rows]) -> Tape | Rows:
    """What `compute` asks for over these inputs, on a tape; nothing is carried out.

    If it cannot be played again, because something was read on the host meanwhile or a block has moved, the result: what
    was asked for is recorded as usual then. No input may have been turned into integers before.
    """
    result, lines = machine.record(compute)
    block = result.owner
    if lines is not None and isinstance(block, Buffer) and _told_apart(inputs):
        return Tape(machine, lines, inputs, result, block)
    if lines is not None:
        machine.calls(lines)
    # The pool for tapes lends its blocks for no longer than a tape runs.
    return result.copy() if isinstance(block, Buffer) else result


def _told_apart(inputs: Sequence[Rows]) -> bool:
    """Whether an address says which input is meant."""
    ranges = sorted((each.address, each.address + each.extent) for each in inputs)
    apart = all(end <= start for (_, end), (start, _) in pairwise(ranges))
    return apart and all(start >= _LEAST_ADDRESS for start, _ in ranges)

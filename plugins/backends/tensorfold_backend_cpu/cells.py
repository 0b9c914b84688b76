"""What only a Step knows (positions, pages, pieces of work), behind addresses that stay.

Prepared calls hold the address of a cell; each Step puts the addresses of its own arrays there. Positions of a Step are
worked out once for all layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.composed_pure import rope_tables
from tensorfold.contracts.handles import Rope
from tensorfold.contracts.states import PAGE, TableKey
from tensorfold.contracts.step import Step
from tensorfold.errors import BackendError
from tensorfold_backend_cpu.kernels.attention import SPAN, WORK_WORDS
from tensorfold_backend_cpu.machine import Machine
from tensorfold_backend_cpu.memory import Memory
from tensorfold_backend_cpu.rows import Rows

__all__ = ["AttentionCell", "AttentionShape", "Cell", "Cells", "RopeCell"]

_TILE_QUERIES: Final = 32
"""Queries of a piece of work, about: their scores and sums stay in the first level of cache."""
_WORKS_A_THREAD: Final = 4
_SPAN: Final = SPAN * PAGE


class Cell(ABC):
    """Words at an address, and the arrays that they point to."""

    def __init__(self, machine: Machine, words: int) -> None:
        self._machine = machine
        self._step: Step[Rows] | None = None
        self._asked = -1
        self._memory = Memory(8 * words)
        self.address = self._memory.address
        self.words: NDArray[np.int64] = self._memory.array(np.int64, words)
        self._held: dict[int, Any] = {}

    def refresh(self, step: Step[Rows]) -> None:
        """Point to the rows of a Step, unless it does already."""
        if self._step is not step:
            if self._asked == self._machine.runs:
                # What was recorded for another Step has not run yet, and reads the cell.
                self._machine.run()
            self.update(step)
            self._step = step
        self._asked = self._machine.runs

    def shows(self, step: Step[Rows]) -> bool:
        """Whether it points to the rows of this Step."""
        return self._step is step

    @abstractmethod
    def update(self, step: Step[Rows]) -> None:
        """Point to the rows of a Step."""

    def point(self, word: int, values: NDArray[Any]) -> None:
        """A word becomes the address of this array, which is kept."""
        self._held[word] = values
        self.words[word] = values.ctypes.data

    def at(self, word: int) -> int:
        """The address of a word."""
        return self.address + 8 * word


@dataclass(frozen=True, slots=True, eq=False)
class _Positions:
    """As much of a Step as the tables are made from."""

    host_positions: NDArray[np.int32]


class RopeCell(Cell):
    """Tables of cosines and sines, and each row's line in them."""

    def __init__(self, machine: Machine, rope: Rope, shift: int) -> None:
        super().__init__(machine, 3)
        self.rope = rope
        self._shift = shift
        self._known = 0

    @property
    def tables(self) -> int:
        """Address of two words: of cosines and of sines."""
        return self.at(0)

    @property
    def places(self) -> int:
        """Address of the word for the rows' lines."""
        return self.at(2)

    def update(self, step: Step[Rows]) -> None:
        """Tables of plain positions are kept and grow; those of several axes are the Step's own."""
        positions = step.host_positions
        if positions.ndim > 1:
            cosines, sines = rope_tables(step, self.rope, self._shift)
            self._tables(cosines, sines)
            self._known = 0
            self.point(2, np.arange(len(cosines), dtype=np.int32))
            return
        needed = int(positions.max()) + 1
        if needed > self._known:
            self._known = max(256, 1 << (needed - 1).bit_length())
            every = _Positions(np.arange(self._known, dtype=np.int32))
            self._tables(*rope_tables(cast("Step[Rows]", every), self.rope, self._shift))
        self.point(2, positions)

    def _tables(self, cosines: NDArray[np.float32], sines: NDArray[np.float32]) -> None:
        self.point(0, np.ascontiguousarray(cosines, np.float32))
        self.point(1, np.ascontiguousarray(sines, np.float32))


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Layers of one shape over one table share a plan."""

    key: TableKey
    heads: int
    kv_heads: int
    v_line: int

    @property
    def tile(self) -> int:
        """Rows of a piece of work at most."""
        return max(1, _TILE_QUERIES // (self.heads // self.kv_heads))


class AttentionCell(Cell):
    """Which rows read what."""

    def __init__(self, machine: Machine, shape: AttentionShape) -> None:
        super().__init__(machine, 8)
        self.shape = shape
        self._partial = Memory(0)

    @property
    def works(self) -> int:
        """Address of the word for the pieces of work."""
        return self.at(0)

    @property
    def items(self) -> int:
        """Address of the number of pieces of work times key heads."""
        return self.at(1)

    @property
    def ranges(self) -> int:
        """Address of the word for each row's first span and number of spans."""
        return self.at(2)

    @property
    def pages(self) -> int:
        """Address of the word for each row's page and place in it."""
        return self.at(3)

    @property
    def spans(self) -> int:
        """Address of the largest number of spans of a row."""
        return self.at(4)

    @property
    def partial(self) -> int:
        """Address of the word for the spans' results."""
        return self.at(5)

    def update(self, step: Step[Rows]) -> None:
        """Work out who reads what."""
        shape = self.shape
        plan = _Plan.of(step, shape, self._machine.team.threads)
        self.point(0, plan.works)
        self.words[1] = len(plan.works) * shape.kv_heads
        self.point(2, plan.ranges)
        self.point(3, plan.pages)
        self.words[4] = plan.spans
        size = 4 * step.rows * plan.spans * shape.heads * (shape.v_line + 16)
        if len(self._partial.bytes) < size:
            self._partial = Memory(2 * size)
        self.words[5] = self._partial.address
        self._held[6] = plan.tables


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    works: NDArray[np.int64]
    """`[works, 8]`, as `kernels.attention` says."""
    ranges: NDArray[np.int32]
    """`[R, 2]`."""
    pages: NDArray[np.int32]
    """`[R, 2]`."""
    spans: int
    tables: Sequence[NDArray[np.int32]]
    """The sequences' page numbers, to which works point."""

    @staticmethod
    def of(step: Step[Rows], shape: AttentionShape, threads: int) -> _Plan:
        window = shape.key.window or 0
        tables = [np.asarray(pages, np.int32) for pages in step.pages[shape.key]]
        pages = np.empty((step.rows, 2), np.int32)
        tiles: list[tuple[int, int, int, int, int, int]] = []
        for segment, (first, last), table in zip(step.segments, step.bounds, tables, strict=True):
            positions = np.arange(segment.start, segment.start + last - first, dtype=np.int64)
            pages[first:last, 0] = table[positions // PAGE]
            pages[first:last, 1] = positions % PAGE
            seen = max(0, segment.start - window + 1) // PAGE if window else 0
            if (table[seen:] < 0).any():
                raise BackendError(f"a row reads a page of table {shape.key} that its sequence has given back")
            address = int(table.ctypes.data)
            for row in range(first, last, shape.tile):
                position = segment.start + row - first
                rows = min(shape.tile, last - row)
                low = max(0, position - window + 1) // _SPAN if window else 0
                tiles.append((row, rows, position, address, low, (position + rows - 1) // _SPAN + 1))
        apart = len(tiles) * shape.kv_heads < _WORKS_A_THREAD * threads
        works, spans = _works(tiles, apart=apart)
        return _Plan(works, _ranges(tiles, step.rows, window, apart=apart), pages, spans, tables)


def _works(tiles: Sequence[tuple[int, int, int, int, int, int]], *, apart: bool) -> tuple[NDArray[np.int64], int]:
    """A piece of work for each tile, or with `apart` for each of its spans; and the number of results of a row."""
    lines: list[tuple[int, ...]] = []
    for row, rows, position, pages, first, last in tiles:
        if apart:
            lines.extend((row, rows, position, pages, span, span + 1, 1, first) for span in range(first, last))
        else:
            lines.append((row, rows, position, pages, first, last, 0, first))
    most = max(last - first for *_, first, last in tiles) if apart else 1
    return np.asarray(lines, np.int64).reshape(-1, WORK_WORDS), most


def _ranges(
    tiles: Sequence[tuple[int, int, int, int, int, int]], rows: int, window: int, *, apart: bool
) -> NDArray[np.int32]:
    """For each row, which of its tile's results are its own."""
    ranges = np.zeros((rows, 2), np.int32)
    ranges[:, 1] = 1
    if apart:
        for row, count, position, _, first, _ in tiles:
            positions = np.arange(position, position + count)
            low = np.maximum(positions - window + 1, 0) // _SPAN if window else np.zeros_like(positions)
            ranges[row : row + count, 0] = low - first
            ranges[row : row + count, 1] = positions // _SPAN + 1 - low
    return ranges


class Cells:
    """All cells of a session."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._ropes: dict[tuple[Rope, int], RopeCell] = {}
        self._attention: dict[AttentionShape, AttentionCell] = {}

    def rope(self, rope: Rope, shift: int = 0) -> RopeCell:
        """That of a rotation."""
        key = (rope, shift)
        found = self._ropes.get(key)
        if found is None:
            found = self._ropes[key] = RopeCell(self._machine, rope, shift)
        return found

    def attention(self, shape: AttentionShape) -> AttentionCell:
        """That of a shape."""
        found = self._attention.get(shape)
        if found is None:
            found = self._attention[shape] = AttentionCell(self._machine, shape)
        return found

    def of(self, step: Step[Rows]) -> tuple[Cell, ...]:
        """Those that were pointed to a Step, and to no other since."""
        return tuple(each for each in (*self._ropes.values(), *self._attention.values()) if each.shows(step))

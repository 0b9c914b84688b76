"""Index plans of a Step, made on the host once and shared by all layers: which page holds what, who looks back where.

A row reads its keys in whole pages, so that what is computed for it has a shape and an order that follow from its own
position alone. Pages beyond a row's own are filled up with any valid one and hidden by the mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.states import PAGE, TableKey
from tensorfold.contracts.step import Step
from tensorfold.errors import BackendError

__all__ = ["BlockPlan", "LookbackPlan", "TurnPlan", "block_plan", "lookback_plan", "memo", "turn_plan"]

T = TypeVar("T")


def memo(step: Step[Any], key: tuple[Any, ...], make: Callable[[], T]) -> T:
    """What `make` gives, once a Step."""
    found = step.scratch.get(key)
    if found is None:
        found = step.scratch[key] = make()
    made: T = found
    return made


@dataclass(frozen=True, slots=True, eq=False)
class BlockPlan:
    """How the rows of a Step write and read the pages of one table. A block is a page of the row's own sequence."""

    key: TableKey
    positions: NDArray[np.int64]
    """`[R]`: each row's place in its own sequence."""
    owner: NDArray[np.int64]
    """`[R]`: each row's segment."""
    pages: NDArray[np.int64]
    """`[S, P]`: the pages of each segment's sequence."""
    first: NDArray[np.int64]
    """`[R]`: the first block that a row's window reaches."""
    last: NDArray[np.int64]
    """`[R]`: the block that holds the row itself."""
    blocks: int
    """B: blocks that the row with the longest view reads."""

    def table(self, first: int, last: int) -> NDArray[np.int64]:
        """`[last - first, B]`: the pages that these rows read.

        Raises:
            BackendError: one of them was given back.
        """
        # Blocks beyond a row's own repeat its last page, which is there in any case.
        numbers = np.minimum(self.first[first:last, None] + np.arange(self.blocks), self.last[first:last, None])
        table: NDArray[np.int64] = self.pages[self.owner[first:last, None], numbers]
        if (table < 0).any():
            raise BackendError(f"a row reads a page of {self.key} that its sequence has given back")
        return table

    def write_index(self, heads: int, rows: int) -> NDArray[np.int64]:
        """`[W, heads]`: places in a pool `[pages, heads, rows, width]` laid end to end, of the rows that are stored."""
        pool = PAGE // rows
        stored = self.stored(pool)
        inside = (self.positions[stored] % PAGE) // pool
        page = self.pages[self.owner[stored], self.last[stored]]
        return (page[:, None] * heads + np.arange(heads)) * rows + inside[:, None]

    def stored(self, pool: int) -> NDArray[np.int64]:
        """The rows that complete a group of `pool` positions."""
        return np.flatnonzero((self.positions + 1) % pool == 0)

    def visible(self, first: int, last: int) -> NDArray[np.bool_]:
        """`[last - first, B, 64]`: what these rows see of their blocks: themselves and what lies before, up to the
        window."""
        own = self.positions[first:last, None]
        places = self.places(first, last)
        seen = places <= own
        if self.key.window is not None:
            seen &= places > own - self.key.window
        return seen.reshape(last - first, self.blocks, PAGE)

    def places(self, first: int, last: int) -> NDArray[np.int64]:
        """`[last - first, B * 64]`: the positions that these rows' blocks hold."""
        return self.first[first:last, None] * PAGE + np.arange(self.blocks * PAGE)

    def spans(self, row_bytes: int, budget: int) -> list[tuple[int, int]]:
        """The rows in runs that read at most so many bytes each (at least one row)."""
        rows = max(1, budget // max(1, row_bytes))
        total = len(self.positions)
        return [(first, min(first + rows, total)) for first in range(0, total, rows)]


def block_plan(step: Step[Any], key: TableKey) -> BlockPlan:
    """The plan of a table, made once a Step."""
    return memo(step, ("blocks", key), lambda: _block_plan(step, key))


def _block_plan(step: Step[Any], key: TableKey) -> BlockPlan:
    held = step.pages[key]
    pages = np.full((len(held), max(len(each) for each in held)), -1, dtype=np.int64)
    for segment, each in enumerate(held):
        pages[segment, : len(each)] = each
    lengths = [last - first for first, last in step.bounds]
    positions = np.concatenate(
        [each.start + np.arange(length) for each, length in zip(step.segments, lengths, strict=True)]
    )
    last = positions // PAGE
    first = np.zeros_like(last) if key.window is None else np.maximum(positions - key.window + 1, 0) // PAGE
    owner = np.repeat(np.arange(len(held)), lengths)
    return BlockPlan(key, positions, owner, pages, first, last, int((last - first).max()) + 1)


@dataclass(frozen=True, slots=True, eq=False)
class LookbackPlan:
    """How rows see earlier inputs of their own sequence.

    The source is laid out as all segments' kept inputs, `keep` each, and after them the Step's rows.
    """

    keep: int
    slots: NDArray[np.int64]
    """`[S]`: whose kept inputs come first in the source."""
    index: NDArray[np.int64]
    """`[R, L]`: places in the source, one a lookback."""
    bounds: tuple[tuple[int, int], ...]

    def after(self, segment: int, rows: int) -> NDArray[np.int64]:
        """`[keep]`: the places of what is kept once so many of a segment's rows are committed."""
        return self._places(segment, rows + np.arange(-self.keep, 0))

    def _places(self, segment: int, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places of the segment's rows by their offset from its first one; negative ones are kept inputs."""
        first, _ = self.bounds[segment]
        kept = self.keep * len(self.slots)
        return np.where(offsets >= 0, kept + first + offsets, segment * self.keep + self.keep + offsets)

    @staticmethod
    def of(step: Step[Any], keep: int, lookbacks: Sequence[int]) -> LookbackPlan:
        """`lookbacks` says how far back each column looks, 0 for the row itself, at most `keep`."""
        slots = np.asarray([each.slot for each in step.segments], dtype=np.int64)
        plan = LookbackPlan(keep, slots, np.empty((0, len(lookbacks)), np.int64), step.bounds)
        back = np.asarray(lookbacks, dtype=np.int64)
        parts = [
            plan._places(segment, np.arange(last - first)[:, None] - back)
            for segment, (first, last) in enumerate(step.bounds)
        ]
        return LookbackPlan(keep, slots, np.concatenate(parts), step.bounds)


def lookback_plan(step: Step[Any], keep: int, lookbacks: tuple[int, ...]) -> LookbackPlan:
    """The plan of these lookbacks, made once a Step."""
    return memo(step, ("lookback", keep, lookbacks), lambda: LookbackPlan.of(step, keep, lookbacks))


@dataclass(frozen=True, slots=True, eq=False)
class TurnPlan:
    """In which order a recurrence goes through the rows: turn i takes row i of every sequence that has one."""

    order: tuple[int, ...]
    """Segments, the longest first, so that those which go on are always the first ones."""
    turns: tuple[NDArray[np.int64], ...]
    """For each turn the rows that it takes, in that order."""
    back: NDArray[np.int64]
    """`[R]`: where each row's output lies when the turns' outputs are laid end to end."""

    @staticmethod
    def of(step: Step[Any]) -> TurnPlan:
        """The turns of a Step's segments."""
        firsts, lasts = np.asarray(step.bounds, dtype=np.int64).T
        lengths = lasts - firsts
        order = np.argsort(-lengths, kind="stable")
        turns = tuple(firsts[order[: int((lengths > turn).sum())]] + turn for turn in range(int(lengths.max())))
        return TurnPlan(tuple(int(each) for each in order), turns, np.argsort(np.concatenate(turns), kind="stable"))


def turn_plan(step: Step[Any]) -> TurnPlan:
    """The turns of a Step, planned once."""
    return memo(step, ("turns",), lambda: TurnPlan.of(step))

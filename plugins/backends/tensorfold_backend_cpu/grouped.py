"""Products of many matrices with a few rows each: the experts of a mixture.

The calls of one matrix differ from those of another in addresses alone. So the lines of all matrices lie ready, and one call
takes those that its rows have chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorfold_backend_cpu.handles import CpuLinear, Part
from tensorfold_backend_cpu.kernels.calls import WORDS, Call
from tensorfold_backend_cpu.kernels.mixtures import RUN_WORDS, Arrange, Grouped
from tensorfold_backend_cpu.machine import Machine
from tensorfold_backend_cpu.panels import PANEL, AffinePanels
from tensorfold_backend_cpu.places import NOWHERE, Target
from tensorfold_backend_cpu.products import ROWS_AN_ITEM, panels_an_item, products
from tensorfold_backend_cpu.rows import Rows

__all__ = ["GroupedLinear", "Runs"]


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Rows in the order of the matrices that they are multiplied by."""

    words: Rows
    """`[most, RUN_WORDS]` words, as in `Arrange`."""
    sources: Rows
    """The row at each place."""
    places: Rows
    """The place of each row and rank."""
    longest: int
    """Rows of a run at most, if none has chosen a matrix twice."""

    @property
    def most(self) -> int:
        """How many there may be."""
        return self.words.shape[0]

    @staticmethod
    def of(machine: Machine, ids: Rows, matrices: int) -> Runs:
        """`ids` `[R, k]`: each row's matrices."""
        chosen = ids if ids.dtype == np.int32 and ids.whole else Rows.of(machine, ids.values().astype(np.int32))
        pairs = chosen.count
        runs = Runs(
            Rows.new(machine, (min(pairs, matrices), RUN_WORDS), np.int64),
            Rows.new(machine, (pairs,), np.int32),
            Rows.new(machine, (pairs,), np.int32),
            chosen.shape[0],
        )
        call = Arrange(
            items=1,
            ids=chosen.address,
            pairs=pairs,
            k=chosen.shape[1],
            experts=matrices,
            sources=runs.sources.address,
            places=runs.places.address,
            runs=runs.words.address,
            most=runs.most,
        )
        machine.call(call, chosen.owner)
        return runs


@dataclass(frozen=True, slots=True, eq=False)
class _Lines:
    """The calls of one part of every matrix."""

    words: NDArray[np.int64]
    """`[matrices, WORDS]`: each for a row that is nowhere yet."""
    part: Part
    """Of the first matrix; those of the others are of the same size and kind."""

    @property
    def step(self) -> int | None:
        """Columns whose activations share a scale; None: they stay floats."""
        panels = self.part.panels
        return panels.layout.step if isinstance(panels, AffinePanels) else None


class GroupedLinear:
    """Matrices of one shape whose parts are stored alike."""

    def __init__(self, linears: Sequence[CpuLinear]) -> None:
        self._linears = tuple(linears)
        self.outputs, self.columns = linears[0].outputs, linears[0].columns
        calls = zip(*(_calls(each) for each in linears), strict=True)
        self._parts = tuple(_lines(each, part) for each, part in zip(calls, linears[0].parts, strict=True))

    @staticmethod
    def of(linears: Sequence[CpuLinear]) -> GroupedLinear | None:
        """None: some of them are stored in another way than others."""
        return GroupedLinear(linears) if len({_layout(each) for each in linears}) == 1 else None

    def __call__(self, x: Rows, runs: Runs) -> Rows:
        """`[R, columns]`, whose runs are multiplied each by its matrix, to `[R, outputs]`."""
        out = Rows.new(x.machine, (x.shape[0], self.outputs))
        for part in self._parts:
            self._record(part, x, runs, out)
        return out

    def _record(self, lines: _Lines, x: Rows, runs: Runs, out: Rows) -> None:
        rows = x.shape[0]
        panels = -(-lines.part.panels.rows // PANEL)
        shared = max(1, rows // runs.most)
        an_item = panels_an_item(panels, PANEL * self.columns * shared, x.machine.team.threads)
        # Longer runs are divided into larger parts.
        row_items = -(-runs.longest // ROWS_AN_ITEM)
        run_items = row_items * -(-panels // an_item)
        step = lines.step
        call = Grouped(
            items=runs.most * run_items,
            lines=int(lines.words.ctypes.data),
            runs=runs.words.address,
            run_items=run_items,
            row_items=row_items,
            rows_an_item=ROWS_AN_ITEM,
            panels_an_item=an_item,
            x=x.address if step is None else x.integers(step).address,
            x_stride=x.stride if step is None else 0,
            out=out.address,
            out_stride=out.stride,
        )
        x.machine.call(call, self, runs.words.owner, *x.forms)


def _calls(linear: CpuLinear) -> list[Call]:
    """One for each part, for a row."""
    columns = linear.columns
    return products(linear, 1, NOWHERE, lambda step: Target(0, 1, columns, step), NOWHERE, None, 1)


def _lines(calls: Sequence[Call], part: Part) -> _Lines:
    return _Lines(np.frombuffer(b"".join(each.words() for each in calls), np.int64).reshape(-1, WORDS), part)


def _layout(linear: CpuLinear) -> tuple[object, ...]:
    """What is the same in all matrices of a group."""
    parts = (
        (part.first, part.panels.rows, part.panels.layout.step if isinstance(part.panels, AffinePanels) else None)
        for part in linear.parts
    )
    return linear.sizes, linear.columns, *parts

"""Products of many matrices with a few rows each: the experts of a mixture.

The calls of one matrix differ from those of another in addresses alone. So the lines of all matrices lie ready; those that
a Step needs are taken, pointed to their rows and recorded all at once, without a look at any one of them from Python.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tensorfold_backend_cpu.handles import CpuLinear, Part
from tensorfold_backend_cpu.kernels.calls import WORDS, Call
from tensorfold_backend_cpu.panels import PANEL, AffinePanels
from tensorfold_backend_cpu.places import Place, Target, Targets
from tensorfold_backend_cpu.products import ROWS_AN_ITEM, panels_an_item, products
from tensorfold_backend_cpu.rows import Rows

__all__ = ["GroupedLinear", "Runs"]

Words = NDArray[np.int64]

_NOWHERE: Final = Place(0, 0)
_ITEMS: Final = 1
"""The word of a line that says how many items there are."""


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Rows in the order of the matrices that they are multiplied by."""

    matrices: Words
    """`[n]`: that of each run of rows."""
    first: Words
    rows: Words

    @staticmethod
    def of(ordered: NDArray[np.integer[Any]]) -> Runs:
        """`[R]`: each row's matrix, in ascending order."""
        first = np.flatnonzero(np.diff(ordered, prepend=-1)).astype(np.int64)
        return Runs(ordered[first].astype(np.int64), first, np.diff(first, append=len(ordered)))


@dataclass(frozen=True, slots=True, eq=False)
class _Lines:
    """The calls of one part of every matrix."""

    words: Words
    """`[matrices, WORDS]`: each for a row that is nowhere yet."""
    fields: dict[str, int]
    """The place of each field in a line."""
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

    def _record(self, part: _Lines, x: Rows, runs: Runs, out: Rows) -> None:
        words = part.words[runs.matrices]
        rows_an_item = np.minimum(runs.rows, ROWS_AN_ITEM)
        panels = -(-part.part.panels.rows // PANEL)
        an_item = panels_an_item(panels, PANEL * self.columns * int(rows_an_item.mean()), x.machine.team.threads)
        pointed: dict[str, int | Words] = {
            "rows": runs.rows,
            "rows_an_item": rows_an_item,
            "panels_an_item": an_item,
            "out": 4 * part.part.first + out.address + runs.first * out.stride,
            "out_stride": out.stride,
        }
        targets = None
        if part.step is None:
            pointed |= {"x": x.address + runs.first * x.stride, "x_stride": x.stride}
        else:
            targets = Targets(x.integers(part.step), runs.first)
            pointed["target"] = targets.addresses
        words[:, _ITEMS] = -(-panels // an_item) * -(-runs.rows // rows_an_item)
        for name, values in pointed.items():
            words[:, part.fields[name]] = values
        x.machine.lines(words, self, targets, *x.forms)


def _calls(linear: CpuLinear) -> list[Call]:
    """One for each part, for a row."""
    columns = linear.columns
    return products(linear, 1, _NOWHERE, lambda step: Target(0, 1, columns, step), _NOWHERE, None, 1)


def _lines(calls: Sequence[Call], part: Part) -> _Lines:
    words = np.frombuffer(b"".join(each.words() for each in calls), np.int64).reshape(-1, WORDS)
    fields = {each.name: 1 + place for place, each in enumerate(dataclasses.fields(calls[0]))}
    return _Lines(words, fields, part)


def _layout(linear: CpuLinear) -> tuple[object, ...]:
    """What is the same in all matrices of a group."""
    parts = (
        (part.first, part.panels.rows, part.panels.layout.step if isinstance(part.panels, AffinePanels) else None)
        for part in linear.parts
    )
    return linear.sizes, linear.columns, *parts

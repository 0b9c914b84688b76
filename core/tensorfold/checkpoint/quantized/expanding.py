"""Matrices that become floats when their rows are asked for, so that a packer never holds more than it works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.tensors import Dense

__all__ = ["Expanding"]

Expand: TypeAlias = Callable[[int, int, int], NDArray[np.float32]]
"""Rows from one to another of one matrix of the stack: (matrix, first, last)."""


class Expanding(Dense):
    """A float32 matrix, or a stack of them, whose values are computed each time that they are read."""

    __slots__ = ("_expand", "_matrix", "_range", "_shape")

    _expand: Expand
    _matrix: int
    """Of the stack, if this is one of its matrices."""
    _range: tuple[int, int]
    """Its rows, of the whole matrix."""
    _shape: tuple[int, ...]

    def __init__(self, shape: tuple[int, ...], expand: Expand) -> None:
        self._set(shape, expand, 0, (0, shape[-2]))

    def _set(self, shape: tuple[int, ...], expand: Expand, matrix: int, rows: tuple[int, int]) -> None:
        # The base is frozen.
        for name, value in {
            "type": "f32",
            "_shape": shape,
            "_expand": expand,
            "_matrix": matrix,
            "_range": rows,
        }.items():
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def values(self) -> NDArray[Any]:  # pyright: ignore[reportIncompatibleVariableOverride] (nobody may write either)
        """All of them at once."""
        first, last = self._range
        if len(self._shape) == 2:
            return self._expand(self._matrix, first, last)
        whole = np.empty(self._shape, np.float32)
        for place, target in enumerate(whole.reshape(-1, *self._shape[-2:])):
            target[:] = self._expand(place, first, last)
        return whole

    def rows(self, first: int, last: int) -> Dense:
        """Rows of a matrix, of which only these will be computed."""
        start = self._range[0]
        return self._part((last - first, self._shape[-1]), self._matrix, (start + first, start + last))

    def at(self, index: int) -> Dense:
        """One matrix of a stack."""
        return self._part(self._shape[1:], index, self._range)

    def _part(self, shape: tuple[int, ...], matrix: int, rows: tuple[int, int]) -> Expanding:
        part = object.__new__(Expanding)
        part._set(shape, self._expand, matrix, rows)
        return part

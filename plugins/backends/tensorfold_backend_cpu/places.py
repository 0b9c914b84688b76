"""Where rows are in memory, as floats, as integers, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypedDict

import numpy as np

from tensorfold_backend_cpu.memory import Memory

__all__ = ["NOWHERE", "FormWords", "Forms", "Place", "Target"]


@dataclass(frozen=True, slots=True)
class Place:
    """Rows of floats."""

    address: int
    stride: int
    """Bytes from row to row."""


class Target:
    """Rows of integers: the memory behind the six words of `kernels.quantized`. Whoever uses the words keeps this."""

    __slots__ = ("_words", "address", "padded", "step")

    def __init__(self, memory: int, rows: int, columns: int, step: int) -> None:
        """`memory` is the address of `size` bytes."""
        self.step = step
        """Columns that share a scale."""
        self.padded = (columns + step - 1) // step * step
        """Columns up to the end of the last step."""
        numbers = 4 * (self.padded // step)
        sums = memory + rows * self.padded
        words = [memory, *(sums + part * rows * numbers for part in range(3)), self.padded, numbers]
        self._words = Memory(8 * len(words))
        self._words.array(np.int64, len(words))[:] = words
        self.address = self._words.address
        """Of the words."""

    @staticmethod
    def size(rows: int, columns: int, step: int) -> int:
        """Bytes for so many rows: a byte for each column, and three numbers for each step."""
        steps = (columns + step - 1) // step
        return rows * steps * (step + 3 * 4)


class FormWords(TypedDict):
    """The fields of a call that say where its results go; 0: nowhere."""

    out: int
    out_stride: int
    step: int
    padded: int
    target: int


@dataclass(frozen=True, slots=True)
class Forms:
    """Where the rows go that a call makes."""

    floats: Place | None
    integers: Target | None = None

    def words(self) -> FormWords:
        """For a call."""
        floats, integers = self.floats or NOWHERE, self.integers
        return {
            "out": floats.address,
            "out_stride": floats.stride,
            "step": 0 if integers is None else integers.step,
            "padded": 0 if integers is None else integers.padded,
            "target": 0 if integers is None else integers.address,
        }


NOWHERE: Final = Place(0, 0)

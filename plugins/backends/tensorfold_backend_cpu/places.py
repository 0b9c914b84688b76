"""Where rows are in memory, as floats, as integers, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypedDict

import numpy as np
from numpy.typing import NDArray

from tensorfold_backend_cpu.memory import Memory

__all__ = ["NOWHERE", "FormWords", "Forms", "Place", "Target", "Targets"]


@dataclass(frozen=True, slots=True)
class Place:
    """Rows of floats."""

    address: int
    stride: int
    """Bytes from row to row."""


class Target:
    """Rows of integers: the memory behind the six words of `kernels.quantized`. Whoever uses the words keeps this."""

    __slots__ = ("_memory", "address", "padded", "step", "words")

    def __init__(self, memory: int, rows: int, columns: int, step: int) -> None:
        """`memory` is the address of `size` bytes."""
        self.step = step
        """Columns that share a scale."""
        self.padded = (columns + step - 1) // step * step
        """Columns up to the end of the last step."""
        numbers = 4 * (self.padded // step)
        sums = memory + rows * self.padded
        words = [memory, *(sums + part * rows * numbers for part in range(3)), self.padded, numbers]
        self._memory = Memory(8 * len(words))
        self.words: NDArray[np.int64] = self._memory.array(np.int64, len(words))
        self.words[:] = words
        self.address = self._memory.address
        """Of the words."""

    @staticmethod
    def size(rows: int, columns: int, step: int) -> int:
        """Bytes for so many rows: a byte for each column, and three numbers for each step."""
        steps = (columns + step - 1) // step
        return rows * steps * (step + 3 * 4)


class Targets:
    """The words of one target for several runs of its rows, each of which is then a target that begins there."""

    __slots__ = ("_words", "addresses")

    def __init__(self, target: Target, first: NDArray[np.int64]) -> None:
        words = np.repeat(target.words[None], len(first), 0)
        words[:, 0] += first * target.words[4]
        words[:, 1:4] += (first * target.words[5])[:, None]
        self._words = words
        self.addresses = int(words.ctypes.data) + words.strides[0] * np.arange(len(first))
        """Of each run's words. Whoever uses them keeps this."""


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

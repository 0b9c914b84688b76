"""Integer codes that are unpacked when their rows are asked for, so that a packer never holds more than it works on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.tensors import Affine

__all__ = ["Unpack", "Unpacking"]

Unpack: TypeAlias = Callable[[int, int], NDArray[np.uint8]]
"""Codes of rows from one to another, `[rows, bytes]` as an `Affine` has them; those of a stack lie under each other."""


class Unpacking(Affine):
    """A quantized matrix, or a stack of them, whose codes are computed each time that they are read."""

    __slots__ = ("_range", "_shape", "_unpack")

    _shape: tuple[int, ...]
    _unpack: Unpack
    _range: tuple[int, int]
    """Its rows, of all that are unpacked."""

    def __init__(
        self,
        bits: int,
        group: int,
        scales: NDArray[np.float32],
        biases: NDArray[np.float32],
        unpack: Unpack,
        first: int = 0,
    ) -> None:
        """Its shape follows from that of the scales; `first`: where its rows begin among those that are unpacked."""
        shape = (*scales.shape[:-1], scales.shape[-1] * group)
        # The base is frozen.
        for name, value in {
            "bits": bits,
            "group": group,
            "scales": scales,
            "biases": biases,
            "_shape": shape,
            "_unpack": unpack,
            "_range": (first, first + math.prod(shape[:-1])),
        }.items():
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def codes(self) -> NDArray[Any]:  # pyright: ignore[reportIncompatibleVariableOverride] (nobody may write either)
        """All of them at once."""
        return self._unpack(*self._range).reshape(*self._shape[:-1], -1)

    def rows(self, first: int, last: int) -> Affine:
        """Rows of a matrix, of which only these will be unpacked."""
        return self._part(slice(first, last))

    def at(self, index: int) -> Affine:
        """One matrix of a stack."""
        return self._part(index)

    def _part(self, part: int | slice) -> Affine:
        start, each = self._range[0], math.prod(self._shape[1:-1])
        first = part if isinstance(part, int) else part.indices(self._shape[0])[0]
        scales, biases = self.scales[part], self.biases[part]
        return Unpacking(self.bits, self.group, scales, biases, self._unpack, start + first * each)

"""Tensors that are given as arrays: a checkpoint whose values a test chose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.tensors import Dense, TensorInfo
from tensorfold.testing.random_tensors import RandomTensors

__all__ = ["ArrayTensors", "arrays_of"]


class ArrayTensors:
    """A `TensorSource` over float32 arrays by name."""

    def __init__(self, values: Mapping[str, NDArray[np.float32]]) -> None:
        self._values = dict(values)

    def names(self) -> Iterable[str]:
        """Every tensor."""
        return self._values.keys()

    def info(self, name: str) -> TensorInfo:
        """Its shape."""
        values = self._values[name]
        return TensorInfo(name, values.shape, "F32", 4 * values.size)

    def read(self, name: str) -> Dense:
        """Its values."""
        return Dense(np.ascontiguousarray(self._values[name], dtype=np.float32), "f32")


def arrays_of(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Random values of these shapes, as `RandomTensors` has them, to be changed and given to `ArrayTensors`."""
    source = RandomTensors(shapes, seed)
    return {name: source.read(name).f32() for name in shapes}

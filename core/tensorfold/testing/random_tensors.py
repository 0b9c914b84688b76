"""Tensors of given shapes with reproducible random values: a checkpoint that exists nowhere."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.weights import TensorSource
from tensorfold.contracts.tensors import Dense, Tensor, TensorInfo

__all__ = ["RandomTensors", "ReplacedTensors"]


class RandomTensors:
    """A `TensorSource`. A tensor's values depend on the seed and on its name alone.

    Matrices and kernels keep the size of what passes through them; a `norm.weight` lies around 1, a `bias` around 0,
    an `A_log` where decays are neither 0 nor 1.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> None:
        self._shapes = dict(shapes)
        self._seed = seed

    def names(self) -> Iterable[str]:
        """Every tensor."""
        return self._shapes.keys()

    def info(self, name: str) -> TensorInfo:
        """Its shape."""
        shape = self._shapes[name]
        return TensorInfo(name, shape, "F32", 4 * int(np.prod(shape)))

    def read(self, name: str) -> Dense:
        """Its values, made now."""
        return Dense(self._values(name, self._shapes[name]), "f32")

    def _values(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        generator = np.random.default_rng([self._seed, zlib.crc32(name.encode())])
        normal = generator.standard_normal(shape)
        if name.endswith("norm.weight"):
            normal = 1.0 + 0.1 * normal
        elif name.endswith("A_log"):
            normal = np.log(generator.uniform(0.1, 2.0, shape))
        elif len(shape) > 1:
            normal = normal * shape[-1] ** -0.5
        else:
            normal = 0.1 * normal
        return normal.astype(np.float32)


class ReplacedTensors:
    """A `TensorSource` with other values in some tensors of another: integers as they are, all else in f32."""

    def __init__(self, source: TensorSource, values: Mapping[str, NDArray[Any]]) -> None:
        self._source = source
        self._values = dict(values)

    def names(self) -> Iterable[str]:
        """Those of the other."""
        return self._source.names()

    def info(self, name: str) -> TensorInfo:
        """That of the other, or of the other values."""
        values = self._values.get(name)
        return self._source.info(name) if values is None else _info(name, values)

    def read(self, name: str) -> Tensor:
        """The other values, or those of the other source."""
        values = self._values.get(name)
        if values is None:
            return self._source.read(name)
        return Dense(values, "i64") if values.dtype.kind == "i" else Dense(values.astype(np.float32), "f32")


def _info(name: str, values: NDArray[Any]) -> TensorInfo:
    return TensorInfo(name, values.shape, "I64" if values.dtype.kind == "i" else "F32", values.nbytes)

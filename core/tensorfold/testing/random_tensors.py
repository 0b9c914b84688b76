"""Tensors of given shapes with reproducible random values: a checkpoint that exists nowhere."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.tensors import Dense, TensorInfo

__all__ = ["RandomTensors"]


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

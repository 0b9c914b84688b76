"""The array primitives on numpy: what the reference computes with, and any backend whose memory is the host's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.primitives import Element, Primitives

__all__ = ["NumpyPrimitives"]

Array = NDArray[Any]


class NumpyPrimitives(Primitives[Array]):
    """numpy, with one floating type for everything."""

    def __init__(self, real: type[np.float32 | np.float64] = np.float32) -> None:
        self._real = np.dtype(real)

    # ---- host and device -------------------------------------------------------------------------------------

    def array(self, values: Array) -> Array:
        return np.array(values, dtype=self._real if values.dtype.kind == "f" else values.dtype, order="C")

    def numpy(self, x: Array) -> Array:
        return x

    def export(self, x: Array) -> Array:
        return x.copy()

    def restore(self, values: Array, element: Element) -> Array:
        return self.array(values)

    def itemsize(self, element: Element) -> int:
        return self._real.itemsize

    # ---- making and writing ----------------------------------------------------------------------------------

    def zeros(self, shape: Sequence[int], element: Element) -> Array:
        return np.zeros(tuple(shape), self._real)

    def cast(self, x: Array, element: Element) -> Array:
        return x.astype(self._real, copy=False)

    def like(self, x: Array, other: Array) -> Array:
        return x.astype(other.dtype, copy=False)

    def put(self, target: Array, index: Array, rows: Array) -> Array:
        target[index] = rows
        return target

    # ---- shape -----------------------------------------------------------------------------------------------

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        return x.reshape(tuple(shape))

    def concat(self, xs: Sequence[Array], axis: int) -> Array:
        return np.concatenate(xs, axis)

    def take(self, x: Array, index: Array, axis: int = 0) -> Array:
        return np.take(x, index, axis)

    def take_along(self, x: Array, index: Array) -> Array:
        return np.take_along_axis(x, index, -1)

    # ---- arithmetic ------------------------------------------------------------------------------------------

    def matmul(self, a: Array, b: Array, *, transposed: bool = False) -> Array:
        # Memory of one layout, whatever was handed in: numpy chooses its BLAS call by the strides.
        second = np.ascontiguousarray(b)
        product: Array = np.matmul(np.ascontiguousarray(a), np.swapaxes(second, -1, -2) if transposed else second)
        return product

    def divide(self, x: Array | float, y: Array | float) -> Array:
        return np.asarray(np.divide(x, y))

    def maximum(self, x: Array, y: Array | float) -> Array:
        return np.asarray(np.maximum(x, y))

    def minimum(self, x: Array, y: Array | float) -> Array:
        return np.asarray(np.minimum(x, y))

    def less(self, x: Array, y: Array | float) -> Array:
        return np.asarray(np.less(x, y))

    def where(self, mask: Array, x: Array, y: Array | float) -> Array:
        return np.where(mask, x, np.asarray(y, dtype=x.dtype))

    def exp(self, x: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(x))

    def tanh(self, x: Array) -> Array:
        return np.asarray(np.tanh(x))

    def sqrt(self, x: Array) -> Array:
        return np.asarray(np.sqrt(x))

    def log1p(self, x: Array) -> Array:
        return np.asarray(np.log1p(x))

    def abs(self, x: Array) -> Array:
        return np.asarray(np.abs(x))

    def sign(self, x: Array) -> Array:
        return np.asarray(np.sign(x))

    def finite(self, x: Array) -> Array:
        return np.nan_to_num(x)

    def largest(self, x: Array, axis: int) -> Array:
        return np.asarray(np.max(x, axis, keepdims=True))

    def argsort(self, x: Array) -> Array:
        return np.argsort(x * -1, axis=-1, kind="stable")

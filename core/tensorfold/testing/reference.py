"""The reference backend: the composed operations on numpy, which every other backend is held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.composed import ComposedSession
from tensorfold.compute.host import host_memory
from tensorfold.compute.primitives import Element, Primitives
from tensorfold.contracts.backend import BackendSettings, DeviceMemory, Suitability
from tensorfold.errors import ConfigError

__all__ = ["NumpyPrimitives", "ReferenceBackend", "ReferenceSession"]

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


class ReferenceSession(ComposedSession[Array]):
    """The composed operations on numpy arrays."""

    def __init__(self, precision: Literal["float32", "float64"], chunk: int) -> None:
        super().__init__(NumpyPrimitives(np.float32 if precision == "float32" else np.float64))
        self._precision = precision
        self._chunk = chunk

    @property
    def device(self) -> str:
        """Always the host."""
        return "numpy"

    @property
    def dtype(self) -> str:
        """float32, or float64 as an oracle."""
        return self._precision

    @property
    def numerics(self) -> str:
        """numpy's version decides its kernels."""
        return f"reference/numpy-{np.__version__}/{self._precision}"

    @property
    def chunk(self) -> int:
        """As the backend was told."""
        return self._chunk

    def memory(self) -> DeviceMemory:
        """The host's."""
        return host_memory()


@dataclass(frozen=True, slots=True)
class ReferenceBackend:
    """numpy in float32, or in float64 as an oracle. Slow, plain, exact; for tests."""

    precision: Literal["float32", "float64"] = "float32"
    chunk: int = 64
    """The step of the chunk plan; tests make it small, so that short prompts take several chunks."""
    name: str = "reference"

    def probe(self) -> Suitability:
        """It runs everywhere and is never the best."""
        return Suitability(0, "numpy")

    def open(self, settings: BackendSettings) -> ReferenceSession:
        """A session on the host.

        Raises:
            ConfigError: another device or dtype is asked for.
        """
        if settings.device not in (None, "cpu"):
            raise ConfigError(f"device is {settings.device!r}, and the reference backend runs on cpu alone")
        if settings.dtype not in (None, self.precision):
            raise ConfigError(f"dtype is {settings.dtype!r}, and this reference backend computes in {self.precision}")
        return ReferenceSession(self.precision, self.chunk)

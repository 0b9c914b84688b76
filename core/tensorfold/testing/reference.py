"""The reference backend: the composed operations on numpy, which every other backend is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.composed import ComposedSession
from tensorfold.compute.host import host_memory
from tensorfold.compute.numpy_primitives import NumpyPrimitives
from tensorfold.contracts.backend import BackendSettings, DeviceMemory, Suitability
from tensorfold.errors import ConfigError

__all__ = ["NumpyPrimitives", "ReferenceBackend", "ReferenceSession"]

Array = NDArray[Any]


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
            ConfigError: another device, dtype or treatment of weights is asked for.
        """
        if settings.device not in (None, "cpu"):
            raise ConfigError(f"device is {settings.device!r}, and the reference backend runs on cpu alone")
        if settings.dtype not in (None, self.precision):
            raise ConfigError(f"dtype is {settings.dtype!r}, and this reference backend computes in {self.precision}")
        if settings.weights not in (None, "auto", "exact"):
            raise ConfigError(f"weights is {settings.weights!r}, and the reference backend computes with floats")
        return ReferenceSession(self.precision, self.chunk)

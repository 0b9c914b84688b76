"""What a quantized checkpoint is read from: tensors as they are stored, whatever their type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from tensorfold.checkpoint.quantized.floats import E4M3, E8M0
from tensorfold.contracts.tensors import Dense, TensorInfo
from tensorfold.errors import CheckpointUnsupported

__all__ = ["REAL", "StoredTensors", "real"]

REAL: Final = frozenset({"F32", "F16", "BF16", "I64", "I32", "F8_E4M3", "F8_E8M0", "I8"})
"""Types in which scales and zero points are read."""


class StoredTensors(Protocol):
    """Tensors by the names of the files."""

    def names(self) -> Iterable[str]:
        """Every tensor."""
        ...

    def info(self, name: str) -> TensorInfo:
        """What the header says."""
        ...

    def read(self, name: str) -> Dense:
        """A tensor of a type that is computed with."""
        ...

    def raw(self, name: str) -> NDArray[Any]:
        """A tensor of any type, as a view of the file; what numpy has no type for, as unsigned integers."""
        ...


def real(stored: StoredTensors, name: str) -> NDArray[np.float32]:
    """Scales and zero points, which are stored in many types, as float32.

    Raises:
        CheckpointUnsupported: they are of a type that scales do not have.
    """
    match kind := stored.info(name).kind:
        case "F32" | "F16" | "BF16" | "I64" | "I32":
            return stored.read(name).f32()
        case "F8_E4M3":
            return np.take(E4M3, stored.raw(name))
        case "F8_E8M0":
            return np.take(E8M0, stored.raw(name))
        case "I8":
            return stored.raw(name).astype(np.float32)
        case _:
            raise CheckpointUnsupported(f"tensor {name} has type {kind}, in which no scales are read")

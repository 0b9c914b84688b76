"""The end of a row: sixteen floats, or those that are left."""

from __future__ import annotations

from tensorfold_backend_cpu.kernels.compiling import kernel
from tensorfold_backend_cpu.kernels.emitter import Vector
from tensorfold_backend_cpu.kernels.simd import load, load_first, store, store_first

__all__ = ["put", "some"]


@kernel
def some(address: int, count: int) -> Vector:
    """Sixteen floats, or the first `count` and zeros."""
    return load(address) if count >= 16 else load_first(address, count)


@kernel
def put(address: int, vector: Vector, count: int) -> None:
    """The first `count` of sixteen floats."""
    if count >= 16:
        store(address, vector)
    else:
        store_first(address, vector, count)

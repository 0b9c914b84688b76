"""MLX: Metal on a Mac, the CPU on Linux. Imports mlx only when a model is opened, or where a Mac may have a GPU."""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold import hookimpl
from tensorfold.contracts.backend import Backend
from tensorfold_backend_mlx.probe import MlxBackend

__all__ = ["MlxBackend", "tensorfold_backends"]


@hookimpl
def tensorfold_backends() -> Iterable[Backend]:
    """One backend, whatever its device."""
    yield MlxBackend()

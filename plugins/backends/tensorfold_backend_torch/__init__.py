"""PyTorch: CUDA where there is one, else the CPU. Imports torch only when a model is opened."""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold import hookimpl
from tensorfold.contracts.backend import Backend
from tensorfold_backend_torch.probe import TorchBackend

__all__ = ["TorchBackend", "tensorfold_backends"]


@hookimpl
def tensorfold_backends() -> Iterable[Backend]:
    """One backend, whatever its device."""
    yield TorchBackend()

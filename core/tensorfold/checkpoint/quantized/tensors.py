"""A checkpoint's tensors with quantized matrices in the place of their parts."""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold.checkpoint.quantized.finding import BESIDE, find_matrices
from tensorfold.checkpoint.quantized.scheme import Scheme
from tensorfold.checkpoint.quantized.stored import StoredTensors
from tensorfold.contracts.tensors import Tensor, TensorInfo

__all__ = ["QuantizedTensors"]


class QuantizedTensors:
    """Stored tensors, of which those that together are a matrix are one, under the name that families ask for."""

    def __init__(self, stored: StoredTensors, scheme: Scheme) -> None:
        """Find the matrices.

        Raises:
            CheckpointUnsupported: naming every tensor that cannot be read.
        """
        self._stored = stored
        self._matrices = find_matrices(scheme, stored)
        parts = {part for matrix in self._matrices.values() for part in matrix.parts}
        plain = (name for name in stored.names() if name not in parts and not name.endswith(BESIDE))
        self._names = (*plain, *self._matrices)

    def names(self) -> Iterable[str]:
        """Every matrix, and every tensor that is no part of one."""
        return self._names

    def info(self, name: str) -> TensorInfo:
        """Of a matrix its logical shape, and the bytes of all its parts."""
        matrix = self._matrices.get(name)
        if matrix is None:
            return self._stored.info(name)
        size = sum(self._stored.info(part).stored_bytes for part in matrix.parts)
        return TensorInfo(name, matrix.shape, matrix.kind, size, matrix.form)

    def read(self, name: str) -> Tensor:
        """A matrix as codes or expanded, by its kind; another tensor as a view of its file."""
        matrix = self._matrices.get(name)
        return self._stored.read(name) if matrix is None else matrix.read(self._stored)

"""A checkpoint's tensors with quantized matrices in the place of their parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tensorfold.checkpoint.quantized.finding import BESIDE, find_matrices
from tensorfold.checkpoint.quantized.scheme import Scheme
from tensorfold.checkpoint.quantized.stored import StoredTensors
from tensorfold.contracts.tensors import Tensor, TensorInfo
from tensorfold.errors import CheckpointUnsupported

__all__ = ["QuantizedTensors"]


class QuantizedTensors:
    """Stored tensors, of which those that together are a matrix are one, under the name that families ask for.

    Parts that do not belong together are one, too, with a problem: whoever asks for it is told, with whatever else does
    not fit, and a module that nobody runs bars nothing.
    """

    def __init__(self, stored: StoredTensors, scheme: Scheme) -> None:
        self._stored = stored
        found = find_matrices(scheme, stored)
        self._matrices, self._unfit = found.matrices, found.unfit
        plain = (name for name in stored.names() if name not in found.parts and not name.endswith(BESIDE))
        self._names = (*plain, *self._matrices, *self._unfit)

    def names(self) -> Iterable[str]:
        """Every matrix, and every tensor that is no part of one."""
        return self._names

    def info(self, name: str) -> TensorInfo:
        """Of a matrix its logical shape, and the bytes of all its parts."""
        if name in self._unfit:
            codes, problem = self._unfit[name]
            return replace(self._stored.info(codes), name=name, problem=problem)
        matrix = self._matrices.get(name)
        if matrix is None:
            return self._stored.info(name)
        size = sum(self._stored.info(part).stored_bytes for part in matrix.parts)
        return TensorInfo(name, matrix.shape, matrix.kind, size, matrix.form)

    def read(self, name: str) -> Tensor:
        """A matrix as codes or expanded, by its kind; another tensor as a view of its file.

        Raises:
            CheckpointUnsupported: its parts do not belong together, or it is of a type that is not read.
        """
        if name in self._unfit:
            raise CheckpointUnsupported(f"{name} {self._unfit[name][1]}")
        matrix = self._matrices.get(name)
        return self._stored.read(name) if matrix is None else matrix.read(self._stored)

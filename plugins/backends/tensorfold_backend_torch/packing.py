"""Stored weights to tensors: as the composed packer makes them, with both sides filled up to whole cache lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tensorfold.compute.composed_pure import handle
from tensorfold.compute.packing import ComposedPacker, DenseEmbedding, DenseLinear, one_width, pieces
from tensorfold.contracts import tensors
from tensorfold.contracts.handles import Embedding
from tensorfold_backend_torch.primitives import TorchPrimitives, padded

__all__ = ["TorchEmbedding", "TorchLinear", "TorchPacker"]


@dataclass(eq=False)
class TorchLinear(DenseLinear[Tensor]):
    """A fused group whose matrix and bias are filled up with zeros to multiples of 16."""

    rows: int
    """Output rows of all parts together; the matrix may have more."""
    real: tuple[Tensor, Tensor | None] | None = None
    """Matrix and bias in f32, once they have been asked for."""

    @property
    def width(self) -> int:
        """Columns of the matrix, `columns` filled up."""
        return self.weight.shape[1]

    def parts(self, wide: bool) -> tuple[Tensor, Tensor | None]:
        """Matrix and bias, in the type of activations or in f32."""
        if not wide or self.weight.dtype == torch.float32:
            return self.weight, self.bias
        if self.real is None:
            self.real = self.weight.float(), None if self.bias is None else self.bias.float()
        return self.real


@dataclass(eq=False)
class TorchEmbedding(DenseEmbedding[Tensor]):
    """A table filled up like a matrix, so that a tied head shares it."""


class TorchPacker(ComposedPacker[Tensor]):
    """Dense handles."""

    def __init__(self, primitives: TorchPrimitives) -> None:
        super().__init__(primitives)
        self._t = primitives

    def linear(self, parts: Sequence[tensors.Tensor], biases: Sequence[tensors.Tensor | None]) -> TorchLinear:
        """One matrix of all parts."""
        packed = super().linear(parts, biases)
        rows, columns = sum(packed.sizes), parts[0].shape[1]
        bias = None if packed.bias is None else F.pad(packed.bias, (0, padded(rows) - rows))
        return TorchLinear(packed.sizes, columns, packed.weight, bias, rows)

    def embedding(self, parts: Sequence[tensors.Tensor]) -> TorchEmbedding:
        """One table of all parts."""
        packed = super().embedding(parts)
        return TorchEmbedding((sum(part.shape[0] for part in parts), parts[0].shape[1]), packed.table)

    def tied(self, embedding: Embedding) -> TorchLinear:
        """The table itself as a matrix."""
        packed: TorchEmbedding = handle(embedding, TorchEmbedding)
        rows, columns = packed.shape
        return TorchLinear((rows,), columns, packed.table, None, rows)

    def joined(self, parts: Sequence[tensors.Tensor]) -> Tensor:
        """The parts under each other, in memory of its final size from the start."""
        rows, columns = sum(part.shape[0] for part in parts), one_width(parts)
        matrix = torch.zeros(padded(rows), padded(columns), dtype=self._t.act, device=self._t.device)
        row = 0
        for piece in pieces(parts):
            values = torch.as_tensor(np.require(piece.f32(), requirements=["C", "W"]))
            matrix[row : row + len(values), :columns] = values.to(self._t.device)
            row += len(values)
        return matrix

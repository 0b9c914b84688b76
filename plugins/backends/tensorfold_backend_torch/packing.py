"""Stored weights to tensors: as the composed packer makes them, with both sides filled up to whole cache lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tensorfold.compute.composed_pure import handle
from tensorfold.compute.packing import ComposedPacker, DenseEmbedding, DenseExperts, DenseLinear, one_width, pieces
from tensorfold.contracts import tensors
from tensorfold.contracts.handles import Activation, Embedding
from tensorfold.errors import BackendError
from tensorfold_backend_torch.primitives import TorchPrimitives, padded

__all__ = ["TorchEmbedding", "TorchExperts", "TorchLinear", "TorchPacker"]


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


@dataclass(eq=False)
class TorchExperts(DenseExperts[Tensor]):
    """Each expert's matrices, which are parts of two stacks."""

    ups: Tensor
    """`[E, 2 I, H]` (gate, then up) when gated, else `[E, I, H]`; both sides filled up like those of a matrix."""
    downs: Tensor
    """`[E, H, I]`."""


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

    def experts(
        self,
        up: Sequence[Sequence[tensors.Tensor]],
        down: Sequence[tensors.Tensor],
        *,
        act: Activation,
        gated: bool,
        limit: float | None,
    ) -> TorchExperts:
        """Two stacks, and each expert's matrices as parts of them."""
        ups, each_up = self._stack(up)
        downs, each_down = self._stack([[part] for part in down])
        return TorchExperts(len(down), each_up, each_down, act, gated, limit, ups, downs)

    def joined(self, parts: Sequence[tensors.Tensor]) -> Tensor:
        """The parts under each other, in memory of its final size from the start."""
        return self._filled(self._zeros(sum(part.shape[0] for part in parts), one_width(parts)), parts)

    def _stack(self, experts: Sequence[Sequence[tensors.Tensor]]) -> tuple[Tensor, tuple[TorchLinear, ...]]:
        sizes = tuple(part.shape[0] for part in experts[0])
        columns = one_width([part for parts in experts for part in parts])
        if any(tuple(part.shape[0] for part in parts) != sizes for parts in experts):
            raise BackendError("experts of one mixture have unlike shapes")
        stack = self._zeros(sum(sizes), columns, len(experts))
        made = (self._filled(matrix, parts) for matrix, parts in zip(stack, experts, strict=True))
        return stack, tuple(TorchLinear(sizes, columns, matrix, None, sum(sizes)) for matrix in made)

    def _zeros(self, rows: int, columns: int, *stacked: int) -> Tensor:
        shape = (*stacked, padded(rows), padded(columns))
        return torch.zeros(shape, dtype=self._t.act, device=self._t.device)

    def _filled(self, matrix: Tensor, parts: Sequence[tensors.Tensor]) -> Tensor:
        row = 0
        for piece in pieces(parts):
            values = torch.as_tensor(np.require(piece.f32(), requirements=["C", "W"]))
            matrix[row : row + len(values), : values.shape[1]] = values.to(self._t.device)
            row += len(values)
        return matrix

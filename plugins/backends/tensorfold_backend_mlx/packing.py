"""Stored weights to handles: quantized matrices keep their codes wherever MLX multiplies by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.composed_pure import handle
from tensorfold.compute.packing import ComposedPacker, DenseConv, DenseLatentUp, one_width
from tensorfold.contracts.handles import Activation, Embedding, Experts, Linear
from tensorfold.contracts.tensors import Affine, Tensor
from tensorfold.errors import BackendError
from tensorfold_backend_mlx.matrices import Kind, Matrix, coded_matrix, float_matrix, kind_of
from tensorfold_backend_mlx.primitives import MlxPrimitives, compute

__all__ = ["MlxEmbedding", "MlxExperts", "MlxLinear", "MlxPacker"]


@dataclass(eq=False)
class MlxLinear(Linear):
    """A fused group: one matrix for each run of parts that are stored alike."""

    sizes: tuple[int, ...]
    columns: int
    matrices: tuple[Matrix, ...]
    bias: mx.array | None
    """`[out]`, act; zeros for a part that has none when another has one."""
    real: tuple[tuple[Matrix, ...], mx.array | None] | None = None
    """Matrices and bias in f32, once they have been asked for."""

    def parts(self, *, wide: bool) -> tuple[tuple[Matrix, ...], mx.array | None]:
        """Matrices and bias, as they were packed or for products that are summed and returned in f32."""
        if not wide:
            return self.matrices, self.bias
        if self.real is None:
            bias = None if self.bias is None else self.bias.astype(mx.float32)
            self.real = tuple(each.real() for each in self.matrices), bias
        return self.real


@dataclass(eq=False)
class MlxEmbedding(Embedding):
    """A table in one piece."""

    shape: tuple[int, int]
    table: Matrix


@dataclass(eq=False)
class MlxExperts(Experts):
    """All experts' matrices, in two stacks."""

    count: int
    up: Matrix
    """`[E, 2 I, H]` (gate, then up) when gated, else `[E, I, H]`."""
    down: Matrix
    """`[E, H, I]`."""
    act: Activation
    gated: bool
    limit: float | None


class MlxPacker:
    """Packs for one device and type. What is returned is computed: no promise keeps the file's memory."""

    def __init__(self, primitives: MlxPrimitives, *, keep_codes: bool) -> None:
        self._p = primitives
        self._keep_codes = keep_codes
        self._composed = ComposedPacker(primitives)

    def linear(self, parts: Sequence[Tensor], biases: Sequence[Tensor | None]) -> MlxLinear:
        """One matrix for each run of parts that are stored alike."""
        self._p.here()
        one_width(parts)
        matrices = [self._packed(run, kind) for kind, run in self._runs(parts)]
        sizes = tuple(part.shape[0] for part in parts)
        bias: mx.array | None = None
        if any(each is not None for each in biases):
            pieces = [
                np.zeros(size, np.float32) if each is None else each.f32()
                for each, size in zip(biases, sizes, strict=True)
            ]
            bias = mx.array(np.concatenate(pieces)).astype(self._p.act)
            compute(bias)
        return MlxLinear(sizes, parts[0].shape[1], tuple(matrices), bias)

    def embedding(self, parts: Sequence[Tensor]) -> MlxEmbedding:
        """One table of all parts."""
        self._p.here()
        one_width(parts)
        table = self._packed(parts, self._common(parts))
        return MlxEmbedding((table.rows, table.columns), table)

    def tied(self, embedding: Embedding) -> MlxLinear:
        """The table itself as a matrix."""
        packed: MlxEmbedding = handle(embedding, MlxEmbedding)
        return MlxLinear((packed.shape[0],), packed.shape[1], (packed.table,), None)

    def vector(self, values: NDArray[np.float32]) -> mx.array:
        """As it is."""
        return self._composed.vector(values)

    def conv(self, kernel: NDArray[np.float32], bias: NDArray[np.float32] | None) -> DenseConv[mx.array]:
        """For the composed operation."""
        return self._composed.conv(kernel, bias)

    def experts(
        self,
        up: Sequence[Sequence[Tensor]],
        down: Sequence[Tensor],
        *,
        act: Activation,
        gated: bool,
        limit: float | None,
    ) -> MlxExperts:
        """Two stacks."""
        self._p.here()
        return MlxExperts(
            count=len(down),
            up=self._stack(up),
            down=self._stack([[each] for each in down]),
            act=act,
            gated=gated,
            limit=limit,
        )

    def latent_up(self, weight: Tensor, heads: int, nope: int, v: int) -> DenseLatentUp[mx.array]:
        """Expanded, for it is used once as it is and once turned."""
        self._p.here()
        packed = self._composed.latent_up(weight, heads, nope, v)
        compute(packed.key, packed.value)
        return packed

    # ---- inside ----------------------------------------------------------------------------------------------

    def _stack(self, experts: Sequence[Sequence[Tensor]]) -> Matrix:
        """The experts' matrices are packed as one, which is then a stack of them."""
        parts = [part for expert in experts for part in expert]
        one_width(parts)
        if len({sum(part.shape[0] for part in expert) for expert in experts}) != 1:
            raise BackendError("experts of one mixture have unlike shapes")
        kind = self._common(parts)
        # MLX gathers matrices on the host in float32 alone.
        dtype = mx.float32 if self._p.on_host else self._p.act
        return (float_matrix(parts, dtype) if kind is None else self._packed(parts, kind)).stack(len(experts))

    def _packed(self, parts: Sequence[Tensor], kind: Kind) -> Matrix:
        """One matrix of parts that are of one kind, or of floats whatever they are."""
        if kind is None:
            return float_matrix(parts, self._p.act)
        codes = [part for part in parts if isinstance(part, Affine)]
        return coded_matrix(codes, kind[0], self._p.act, on_host=self._p.on_host)

    def _kind(self, part: Tensor) -> Kind:
        return kind_of(part) if self._keep_codes else None

    def _common(self, parts: Sequence[Tensor]) -> Kind:
        """The kind that all have, or floats."""
        kinds = {self._kind(part) for part in parts}
        return kinds.pop() if len(kinds) == 1 else None

    def _runs(self, parts: Sequence[Tensor]) -> list[tuple[Kind, list[Tensor]]]:
        """Neighbours of one kind."""
        return [(kind, list(run)) for kind, run in groupby(parts, key=self._kind)]

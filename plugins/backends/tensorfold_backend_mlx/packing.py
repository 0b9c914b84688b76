"""Stored weights to handles: quantized matrices keep their codes wherever MLX multiplies by them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.composed_pure import handle
from tensorfold.compute.packing import ComposedPacker, DenseConv, DenseLatentUp
from tensorfold.contracts.handles import Activation, Embedding, Experts, Linear
from tensorfold.contracts.tensors import Affine, Tensor
from tensorfold.errors import BackendError
from tensorfold_backend_mlx.matrices import CodedMatrix, FloatMatrix, Matrix, coded, joined, stacked
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
        """One matrix where all parts are stored alike."""
        self._p.here()
        matrices = self._joined(parts)
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
        matrices = self._joined(parts)
        if len(matrices) > 1:
            matrices = self._computed(joined([self._floats(part) for part in parts]))
        return MlxEmbedding((matrices[0].rows, matrices[0].columns), matrices[0])

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

    def _joined(self, parts: Sequence[Tensor]) -> list[Matrix]:
        widths = {part.shape[1] for part in parts}
        if len(widths) != 1:
            raise BackendError(f"matrices of {sorted(widths)} columns cannot be fused: they must have one width")
        return self._computed(joined([self._matrix(part) for part in parts]))

    def _stack(self, experts: Sequence[Sequence[Tensor]]) -> Matrix:
        stack = self._stacked(self._joined(parts) for parts in experts)
        if stack is None:
            stack = self._stacked(joined([self._floats(part) for part in parts]) for parts in experts)
        if stack is None:
            raise BackendError("experts of one mixture have unlike shapes")
        if isinstance(stack, FloatMatrix) and self._p.on_host:
            # MLX gathers matrices on the host in float32 alone.
            stack = FloatMatrix(stack.weight.astype(mx.float32))
        return self._computed([stack])[0]

    @staticmethod
    def _stacked(experts: Iterable[list[Matrix]]) -> Matrix | None:
        """Every expert in one matrix, and all of one kind; None otherwise."""
        singles: list[Matrix] = []
        for matrices in experts:
            if len(matrices) != 1:
                return None
            singles.append(matrices[0])
        return stacked(singles)

    def _matrix(self, tensor: Tensor) -> Matrix:
        packed: Matrix | None = None
        if isinstance(tensor, Affine) and self._keep_codes:
            packed = coded(tensor, self._p.act, on_host=self._p.on_host)
        return self._floats(tensor) if packed is None else packed

    def _floats(self, tensor: Tensor) -> FloatMatrix:
        if not isinstance(tensor, Affine) and tensor.type == "bf16":
            # Half the memory on the way: the bits are taken as they are.
            return FloatMatrix(mx.array(tensor.values).view(mx.bfloat16).astype(self._p.act))
        return FloatMatrix(mx.array(tensor.f32()).astype(self._p.act))

    @staticmethod
    def _computed(matrices: list[Matrix]) -> list[Matrix]:
        for each in matrices:
            match each:
                case FloatMatrix():
                    compute(each.weight)
                case CodedMatrix():
                    compute(each.words, each.scales, each.biases)
        return matrices

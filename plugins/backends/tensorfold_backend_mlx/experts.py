"""Mixtures of experts without a look at which were chosen: MLX gathers the matrices that it multiplies by."""

from __future__ import annotations

import mlx.core as mx

from tensorfold.compute.composed_pure import handle
from tensorfold.contracts.handles import Experts
from tensorfold_backend_mlx.matrices import CodedMatrix, FloatMatrix, Matrix
from tensorfold_backend_mlx.packing import MlxExperts
from tensorfold_backend_mlx.pure import MlxPureOps

__all__ = ["ChunkExpertOps", "MlxExpertOps"]


class MlxExpertOps(MlxPureOps):
    """`experts`; subclasses say in which order rows and experts meet."""

    def experts(self, x: mx.array, ids: mx.array, weights: mx.array, experts: Experts) -> mx.array:
        packed: MlxExperts = handle(experts, MlxExperts)
        outputs = self.run_experts(x, ids, packed).astype(mx.float32)
        y = outputs[:, 0] * weights[:, 0, None]
        for rank in range(1, ids.shape[1]):
            y = y + outputs[:, rank] * weights[:, rank, None]
        return y.astype(self.m.act)

    def run_experts(self, x: mx.array, ids: mx.array, packed: MlxExperts) -> mx.array:
        """`[R, H]` and `[R, k]` to `[R, k, H]`: every pair is a product of its own, whoever shares the call."""
        opened = self._opened_by(packed, self._gathered(x[:, None, None], packed.up, ids, in_order=False))
        return self._gathered(opened, packed.down, ids, in_order=False)[:, :, 0]

    def _opened_by(self, packed: MlxExperts, inner: mx.array) -> mx.array:
        if packed.gated:
            return self.glu(inner, packed.act, packed.limit)
        return self.activate(inner, packed.act)

    def _gathered(self, x: mx.array, stack: Matrix, ids: mx.array, *, in_order: bool) -> mx.array:
        """`[..., 1, I]` times the transposed matrices that ids `[...]` name, in act."""
        match stack:
            case FloatMatrix(weight=weight):
                product = mx.gather_mm(
                    x.astype(weight.dtype), weight.swapaxes(-1, -2), rhs_indices=ids, sorted_indices=in_order
                )
            case CodedMatrix(words, scales, biases, bits, group):
                product = mx.gather_qmm(
                    x.astype(scales.dtype),
                    words,
                    scales,
                    biases,
                    rhs_indices=ids,
                    group_size=group,
                    bits=bits,
                    sorted_indices=in_order,
                )
        return product.astype(self.m.act)


class ChunkExpertOps(MlxExpertOps):
    """Rows of a chunk are brought into the order of their experts, whose matrices are then read once."""

    def run_experts(self, x: mx.array, ids: mx.array, packed: MlxExperts) -> mx.array:
        rows, k = ids.shape
        flat = mx.flatten(ids)
        order = mx.argsort(flat)
        chosen = flat[order]
        taken = x[order // k][:, None]
        opened = self._opened_by(packed, self._gathered(taken, packed.up, chosen, in_order=True))
        outputs = self._gathered(opened, packed.down, chosen, in_order=True)[:, 0]
        return mx.reshape(outputs[mx.argsort(order)], (rows, k, -1))

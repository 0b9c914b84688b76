"""The operations that keep no state, where MLX has better than the composed ones."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.compute.composed import ComposedOps
from tensorfold.compute.composed_plans import memo
from tensorfold.compute.composed_pure import handle, rope_tables
from tensorfold.compute.store import ComposedStore
from tensorfold.contracts.handles import Activation, Embedding, Rope
from tensorfold.contracts.step import Step
from tensorfold_backend_mlx.elementwise import Elementwise
from tensorfold_backend_mlx.matrices import CodedMatrix, FloatMatrix
from tensorfold_backend_mlx.packing import MlxEmbedding
from tensorfold_backend_mlx.primitives import MlxPrimitives

__all__ = ["MlxPureOps"]


class MlxPureOps(ComposedOps[mx.array]):
    """What both kinds share. MLX's norms, softmax and elementwise kernels see one row at a time, on every device."""

    def __init__(self, primitives: MlxPrimitives, store: ComposedStore[mx.array], elementwise: Elementwise) -> None:
        super().__init__(primitives, store)
        self.m = primitives
        self.e = elementwise

    def embed(self, ids: mx.array, weight: Embedding) -> mx.array:
        packed: MlxEmbedding = handle(weight, MlxEmbedding)
        match packed.table:
            case FloatMatrix(weight=table):
                return table[ids]
            case CodedMatrix(words, scales, biases, bits, group):
                rows = mx.dequantize(words[ids], scales[ids], biases[ids], group_size=group, bits=bits)
                return rows.astype(self.m.act)

    # ---- norms -----------------------------------------------------------------------------------------------

    def rms_norm(self, x: mx.array, weight: mx.array | None, eps: float) -> mx.array:
        return self._rms(x, weight, eps).astype(self.m.act)

    def _rms(self, x: mx.array, weight: mx.array | None, eps: float) -> mx.array:
        if weight is None or weight.ndim == 1:
            return mx.fast.rms_norm(x, weight, eps)
        return mx.fast.rms_norm(x.astype(mx.float32), None, eps) * weight

    def layer_norm(self, x: mx.array, weight: mx.array, bias: mx.array | None, eps: float) -> mx.array:
        return mx.fast.layer_norm(x, weight, bias, eps).astype(self.m.act)

    def gated_rms_norm(
        self, x: mx.array, gate: mx.array, weight: mx.array, eps: float, *, gate_first: bool, act: Activation
    ) -> mx.array:
        if gate_first:
            return self._rms(self.e.opened[act](x, gate), weight, eps).astype(self.m.act)
        normed = self._rms(x.astype(mx.float32), weight, eps)
        return self.e.opened[act](normed, gate).astype(self.m.act)

    # ---- elementwise -----------------------------------------------------------------------------------------

    def activate(self, x: mx.array, act: Activation) -> mx.array:
        return self.e.activated[act](x)

    def softplus(self, x: mx.array) -> mx.array:
        return self.e.softplus(x)

    def glu(self, gate_up: mx.array, act: Activation, limit: float | None = None) -> mx.array:
        gate, up = mx.split(gate_up, 2, -1)
        if limit is not None:
            gate, up = mx.minimum(gate, limit), mx.clip(up, -limit, limit)
        return self.e.gated[act](gate, up)

    def softmax(self, x: mx.array, axis: int = -1) -> mx.array:
        return mx.softmax(x.astype(mx.float32), axis)

    # ---- position --------------------------------------------------------------------------------------------

    def rope(self, step: Step[mx.array], x: mx.array, rope: Rope, *, shift: int = 0) -> mx.array:
        pairs = len(rope.inv_freq)
        if rope.interleaved or 2 * pairs != x.shape[-1]:
            return super().rope(step, x, rope, shift=shift)
        cosine, sine = memo(step, ("turning", rope, shift), lambda: self._turning(step, rope, shift))
        wide = x.astype(mx.float32)
        return self.e.turned(wide, mx.roll(wide, pairs, -1), cosine, sine)

    def _turning(self, step: Step[Any], rope: Rope, shift: int) -> tuple[mx.array, mx.array]:
        """`[R, 1, d]` each: cosines, and the sines by which the other half of the row is multiplied."""
        cosine, sine = rope_tables(step, rope, shift)
        both = np.concatenate([cosine, cosine], -1), np.concatenate([-sine, sine], -1)
        return self.m.array(both[0][:, None]), self.m.array(both[1][:, None])

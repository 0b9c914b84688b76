"""Gemma 4's attention: normalized queries, keys and values; keys that serve as values; keys of an earlier layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers import RmsNorm
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Linear, Rope
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step

__all__ = ["NormedAttention"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NormedAttention(Generic[A]):
    """Grouped-query attention; how far a row sees is the state's window."""

    state: str
    """The declared `KV` state, of this layer or of the one whose keys and values it reads."""
    heads: int
    kv_heads: int
    head_dim: int
    qkv: Linear
    """Query; key and value unless they are another layer's, value unless the keys are values."""
    out: Linear
    scale: float
    rope: Rope
    q_norm: RmsNorm[A]
    """Of each query head, before the rotation."""
    k_norm: RmsNorm[A] | None
    """None: keys and values are another layer's."""
    has_values: bool
    eps: float
    """Of the values' norm, which has no weight."""
    shift: int = 0
    """Added to the positions at which the queries are rotated."""

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        queries = self.heads * self.head_dim
        projected = ops.linear(x, self.qkv)
        k: A | None = None
        v: A | None = None
        if self.k_norm is not None:
            k, v = self._keys_and_values(ops, step, projected, self.k_norm)
            projected, *_ = ops.split(projected, (queries,))
        q = self.q_norm(ops, ops.reshape(projected, -1, self.heads, self.head_dim))
        seen = ops.attend(step, self.state, ops.rope(step, q, self.rope, shift=self.shift), k, v, scale=self.scale)
        return ops.linear(ops.reshape(seen, -1, queries), self.out)

    def _keys_and_values(self, ops: Ops[A], step: Step[A], projected: A, norm: RmsNorm[A]) -> tuple[A, A]:
        """`[R, k, d]` each."""
        keys = self.kv_heads * self.head_dim
        sizes = (self.heads * self.head_dim, keys, keys) if self.has_values else (self.heads * self.head_dim, keys)
        _, *parts = ops.split(projected, sizes)
        k, v = (ops.reshape(part, -1, self.kv_heads, self.head_dim) for part in (parts[0], parts[-1]))
        return ops.rope(step, norm(ops, k), self.rope), ops.rms_norm(v, None, self.eps)

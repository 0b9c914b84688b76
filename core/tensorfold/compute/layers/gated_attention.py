"""Grouped-query attention whose output is gated: the query projection gives a gate beside each query head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers.norm import RmsNorm, rms_norm
from tensorfold.compute.layers.sparse_index import BlockIndexer
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Linear, Rope
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights

__all__ = ["GatedAttention", "gated_attention"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GatedAttention(Generic[A]):
    """out(attention(x) * sigmoid(gate(x))), with normalized queries and keys."""

    state: str
    """The declared `KV` state."""
    heads: int
    kv_heads: int
    head_dim: int
    qkv: Linear
    """Query and gate, head by head; key; value; fused in this order, with their biases."""
    out: Linear
    rope: Rope
    q_norm: RmsNorm[A]
    """Of each query head, before the rotation."""
    k_norm: RmsNorm[A]
    indexer: BlockIndexer[A] | None = None
    """Chooses the positions that a row reads; None: all."""

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        q, k, v = ops.split(ops.linear(x, self.qkv), (2 * queries, keys, keys))
        q, gate = ops.split(ops.reshape(q, -1, self.heads, 2 * self.head_dim), (self.head_dim, self.head_dim))
        q = ops.rope(step, self.q_norm(ops, q), self.rope)
        k = ops.rope(step, self.k_norm(ops, ops.reshape(k, -1, self.kv_heads, self.head_dim)), self.rope)
        v = ops.reshape(v, -1, self.kv_heads, self.head_dim)
        chosen = None if self.indexer is None else self.indexer(ops, step, x)
        attended = ops.attend(step, self.state, q, k, v, scale=self.head_dim**-0.5, select=chosen)
        seen: A = attended * ops.sigmoid(gate)
        return ops.linear(ops.reshape(seen, -1, queries), self.out)


def gated_attention(
    weights: Weights[A],
    prefix: str,
    state: str,
    *,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    rope: Rope,
    eps: float,
    zero_centred: bool,
    bias: bool | None = None,
    indexer: BlockIndexer[A] | None = None,
) -> GatedAttention[A]:
    """The block of modules `prefix.{q,k,v,o}_proj` and `prefix.{q,k}_norm`.

    Args:
        state: the name of its declared `KV` state.
        zero_centred: whether the norms apply 1 + w.
        bias: of all four projections, as in `Weights.linear`.
        indexer: chooses what is read; None: everything is.
    """
    queries, keys = heads * head_dim, kv_heads * head_dim

    def norm(name: str) -> RmsNorm[A]:
        return rms_norm(weights, f"{prefix}.{name}", head_dim, eps, zero_centred=zero_centred)

    return GatedAttention(
        state=state,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        qkv=weights.linear(
            *(f"{prefix}.{name}_proj" for name in "qkv"), sizes=(2 * queries, keys, keys), columns=hidden, bias=bias
        ),
        out=weights.linear(f"{prefix}.o_proj", sizes=(hidden,), columns=queries, bias=bias),
        rope=rope,
        q_norm=norm("q_norm"),
        k_norm=norm("k_norm"),
        indexer=indexer,
    )

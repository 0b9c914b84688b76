"""Grouped-query attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers.norm import RmsNorm, rms_norm
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Linear, Rope
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights

__all__ = ["Attention", "attention"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Attention(Generic[A]):
    """Attention of `heads` query heads over `kv_heads` key heads; how far a row sees is the state's window."""

    state: str
    """The declared `KV` state."""
    heads: int
    kv_heads: int
    head_dim: int
    qkv: Linear
    """Query, key and value, fused in this order, with their biases."""
    out: Linear
    scale: float
    """Multiplies the scores."""
    rope: Rope | None
    """None: positions are not encoded."""
    q_norm: RmsNorm[A] | None = None
    """Of each query head, before the rotation."""
    k_norm: RmsNorm[A] | None = None
    softcap: float | None = None
    """Bounds the scores by cap * tanh(score / cap)."""

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        q, k, v = ops.split(ops.linear(x, self.qkv), (queries, keys, keys))
        q = self._placed(ops, step, ops.reshape(q, -1, self.heads, self.head_dim), self.q_norm)
        k = self._placed(ops, step, ops.reshape(k, -1, self.kv_heads, self.head_dim), self.k_norm)
        v = ops.reshape(v, -1, self.kv_heads, self.head_dim)
        seen = ops.attend(step, self.state, q, k, v, scale=self.scale, softcap=self.softcap)
        return ops.linear(ops.reshape(seen, -1, queries), self.out)

    def _placed(self, ops: Ops[A], step: Step[A], x: A, norm: RmsNorm[A] | None) -> A:
        if norm is not None:
            x = norm(ops, x)
        return x if self.rope is None else ops.rope(step, x, self.rope)


def attention(
    weights: Weights[A],
    prefix: str,
    state: str,
    *,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    rope: Rope | None,
    norm_eps: float | None = None,
    zero_centred: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
    qkv_bias: bool | None = None,
    out_bias: bool | None = None,
) -> Attention[A]:
    """The block of modules `prefix.{q,k,v,o}_proj`.

    Args:
        state: the name of its declared `KV` state.
        norm_eps: epsilon of `prefix.q_norm` and `prefix.k_norm`; None: queries and keys are not normalized.
        zero_centred: whether these norms apply 1 + w.
        scale: of the scores; None: 1 / sqrt(head_dim).
        qkv_bias: as in `Weights.linear`, and so `out_bias`.
    """
    queries, keys = heads * head_dim, kv_heads * head_dim

    def norm(name: str) -> RmsNorm[A] | None:
        if norm_eps is None:
            return None
        return rms_norm(weights, f"{prefix}.{name}", head_dim, norm_eps, zero_centred=zero_centred)

    return Attention(
        state=state,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        qkv=weights.linear(
            *(f"{prefix}.{name}_proj" for name in "qkv"), sizes=(queries, keys, keys), columns=hidden, bias=qkv_bias
        ),
        out=weights.linear(f"{prefix}.o_proj", sizes=(hidden,), columns=queries, bias=out_bias),
        scale=head_dim**-0.5 if scale is None else scale,
        rope=rope,
        q_norm=norm("q_norm"),
        k_norm=norm("k_norm"),
        softcap=softcap,
    )

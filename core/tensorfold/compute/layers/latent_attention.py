"""Multi-head latent attention (MLA, arXiv 2405.04434): keys and values of all heads from one compressed row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers.norm import RmsNorm, rms_norm
from tensorfold.compute.layers.sparse_index import LatentIndexer
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import LatentUp, Linear, Rope
from tensorfold.contracts.ops import Ops, Selection
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights

__all__ = ["LatentAttention", "LatentShape", "latent_attention"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentShape:
    """The sizes of latent attention."""

    heads: int
    query_rank: int
    """Width of the compressed query."""
    latent: int
    """Width of the compressed keys and values."""
    nope: int
    """Part of a head's key that comes from the latent."""
    rope: int
    """Part of a head's key that is turned by the position and shared by all heads; 0: none."""
    value: int
    """Width of a head's value."""

    @property
    def compressed(self) -> tuple[int, ...]:
        """Widths of compressed query, latent and (if there is one) rotary key."""
        return (self.query_rank, self.latent, self.rope) if self.rope else (self.query_rank, self.latent)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LatentAttention(Generic[A]):
    """Latent attention, over all earlier positions or over those that an indexer chose.

    A layer without an indexer reads what the last layer with one has chosen, which is why the choice goes in and out.
    """

    state: str
    """The declared `Latent` state."""
    shape: LatentShape
    compress: Linear
    """Compressed query, latent and rotary key, fused in this order."""
    query_norm: RmsNorm[A]
    queries: Linear
    """From the compressed query: each head's part without, then with rotation."""
    latent_norm: RmsNorm[A]
    up: LatentUp
    out: Linear
    rope: Rope | None
    indexer: LatentIndexer[A] | None

    def __call__(self, ops: Ops[A], step: Step[A], x: A, chosen: Selection | None = None) -> tuple[A, Selection | None]:
        """`[R, H]` to `[R, H]`, with the choice for the layers behind."""
        shape = self.shape
        compressed, latent, *rotary = ops.split(ops.linear(x, self.compress), shape.compressed)
        compressed = self.query_norm(ops, compressed)
        if self.indexer is not None:
            chosen = self.indexer(ops, step, x, compressed)
        query = ops.reshape(ops.linear(compressed, self.queries), -1, shape.heads, shape.nope + shape.rope)
        turned: A | None = None
        key: A | None = None
        if self.rope is not None:
            query, turned = ops.split(query, (shape.nope, shape.rope))
            turned = ops.rope(step, turned, self.rope)
            key = ops.rope(step, ops.reshape(rotary[0], -1, 1, shape.rope), self.rope)
            key = ops.reshape(key, -1, shape.rope)
        seen = ops.attend_latent(
            step,
            self.state,
            query,
            turned,
            self.latent_norm(ops, latent),
            key,
            self.up,
            scale=(shape.nope + shape.rope) ** -0.5,
            select=chosen,
        )
        return ops.linear(ops.reshape(seen, -1, shape.heads * shape.value), self.out), chosen


def latent_attention(
    weights: Weights[A],
    prefix: str,
    state: str,
    shape: LatentShape,
    *,
    hidden: int,
    norm_eps: float,
    rope: Rope | None,
    indexer: LatentIndexer[A] | None,
) -> LatentAttention[A]:
    """The attention of modules under a prefix (`self_attn`).

    Args:
        state: the name of its declared `Latent` state.
        norm_eps: of the norms of compressed query and latent.
        rope: None when the shape has no rotary part.
    """
    return LatentAttention(
        state=state,
        shape=shape,
        compress=weights.linear(
            f"{prefix}.q_a_proj",
            f"{prefix}.kv_a_proj_with_mqa",
            sizes=(shape.query_rank, shape.latent + shape.rope),
            columns=hidden,
            bias=False,
        ),
        query_norm=rms_norm(weights, f"{prefix}.q_a_layernorm", shape.query_rank, norm_eps),
        queries=weights.linear(
            f"{prefix}.q_b_proj",
            sizes=(shape.heads * (shape.nope + shape.rope),),
            columns=shape.query_rank,
            bias=False,
        ),
        latent_norm=rms_norm(weights, f"{prefix}.kv_a_layernorm", shape.latent, norm_eps),
        up=weights.latent_up(f"{prefix}.kv_b_proj", shape.heads, shape.nope, shape.value, columns=shape.latent),
        out=weights.linear(f"{prefix}.o_proj", sizes=(hidden,), columns=shape.heads * shape.value, bias=False),
        rope=rope,
        indexer=indexer,
    )

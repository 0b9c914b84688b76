"""Indexers of sparse attention: which earlier positions a row reads.

Both score keys of their own, cheap ones, and keep the best. `LatentIndexer` is DeepSeek Sparse Attention's (DSA, arXiv
2512.02556), whose queries come from the compressed query of latent attention; it may pool consecutive keys by learned
weights. `BlockIndexer` scores the mean key of every block of consecutive positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers.norm import RmsNorm, rms_norm
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Linear, Rope
from tensorfold.contracts.ops import Ops, Selection
from tensorfold.contracts.states import Group, IndexKeys, Recent, StateSpec
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights

__all__ = [
    "BlockIndexer",
    "IndexShape",
    "KeyPool",
    "LatentIndexer",
    "block_indexer",
    "block_indexer_states",
    "latent_indexer",
    "latent_indexer_states",
]

KEY_NORM_EPS = 1e-6
"""Of the layer norm of DSA's keys, whatever the config says of other norms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexShape:
    """The sizes of an indexer."""

    heads: int
    dim: int
    """Of a head, and of the one key that all heads share."""
    budget: int
    """Positions that a row reads at most, besides those of the last incomplete pool."""
    pool: int = 1
    """Consecutive positions that are chosen together; divides the budget."""

    @property
    def topk(self) -> int:
        """Pools that a row reads."""
        return self.budget // self.pool


# ---- DSA ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class KeyPool(Generic[A]):
    """One key for several positions: their keys, weighed feature by feature by a softmax over the positions."""

    state: str
    """The declared `Recent` state."""
    gate: Linear
    """From the hidden row to one logit a feature of the key."""
    place: A
    """`[pool, dim]`, added to the logits by place in the pool."""

    def __call__(self, ops: Ops[A], step: Step[A], x: A, key: A) -> A:
        """`[R, H]` and `[R, d]` to `[R, d]`, the key of the pool that a row would complete."""
        width: int = key.shape[-1]
        seen = ops.recent(step, self.state, ops.concat([key, ops.linear(x, self.gate)]))
        keys, logits = ops.split(seen, (width, width))
        weights = ops.softmax(logits + self.place, axis=1)
        return ops.sum(weights * keys, 1)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LatentIndexer(Generic[A]):
    """Chooses by sum over heads of weight * relu(query . key)."""

    state: str
    """The declared `IndexKeys` state."""
    shape: IndexShape
    queries: Linear
    """From the normalized compressed query."""
    key_weights: Linear
    """From the hidden row: the key, and a weight for each head, fused in this order."""
    key_norm: A
    key_bias: A
    rope: Rope | None
    """None: positions are not encoded."""
    pool: KeyPool[A] | None

    def __call__(self, ops: Ops[A], step: Step[A], x: A, compressed: A) -> Selection:
        """`[R, H]`, `[R, q_lora]`: what each row reads."""
        heads, dim = self.shape.heads, self.shape.dim
        key, weights = ops.split(ops.linear(x, self.key_weights), (dim, heads))
        key = ops.layer_norm(key, self.key_norm, self.key_bias, KEY_NORM_EPS)
        query = ops.reshape(ops.linear(compressed, self.queries), -1, heads, dim)
        if self.rope is not None:
            query = ops.rope(step, query, self.rope)
            key = ops.reshape(ops.rope(step, ops.reshape(key, -1, 1, dim), self.rope), -1, dim)
        if self.pool is not None:
            key = self.pool(ops, step, x, key)
        return ops.index_topk(
            step, self.state, query, key, weights * heads**-0.5, topk=self.shape.topk, scale=dim**-0.5
        )


def latent_indexer(
    weights: Weights[A],
    prefix: str,
    state: str,
    shape: IndexShape,
    *,
    hidden: int,
    compressed: int,
    rope: Rope | None,
) -> LatentIndexer[A]:
    """The indexer of modules under a prefix (`self_attn.indexer`), whose states begin with a name.

    Args:
        compressed: width of the compressed query.
    """
    pool: KeyPool[A] | None = None
    if shape.pool > 1:
        pool = KeyPool(
            state=f"{state}.recent",
            gate=weights.matrix(f"{prefix}.index_kpool_compress_gate", shape=(shape.dim, hidden)),
            place=weights.vector(f"{prefix}.index_kpool_compress_ape", shape=(shape.pool, shape.dim)),
        )
    return LatentIndexer(
        state=f"{state}.keys",
        shape=shape,
        queries=weights.linear(f"{prefix}.wq_b", sizes=(shape.heads * shape.dim,), columns=compressed, bias=False),
        key_weights=weights.linear(
            f"{prefix}.wk", f"{prefix}.weights_proj", sizes=(shape.dim, shape.heads), columns=hidden, bias=False
        ),
        key_norm=weights.vector(f"{prefix}.k_norm.weight", shape=(shape.dim,)),
        key_bias=weights.vector(f"{prefix}.k_norm.bias", shape=(shape.dim,)),
        rope=rope,
        pool=pool,
    )


def latent_indexer_states(state: str, shape: IndexShape, group: Group = "main") -> dict[str, StateSpec]:
    """Its keys, and with pools the keys and logits of the pool that is not complete yet."""
    states: dict[str, StateSpec] = {f"{state}.keys": IndexKeys(shape.dim, shape.pool, group)}
    if shape.pool > 1:
        states[f"{state}.recent"] = Recent(2 * shape.dim, shape.pool, group)
    return states


# ---- blocks of positions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BlockIndexer(Generic[A]):
    """Chooses blocks by sum over heads of relu(query . key), a block's key being the normalized mean of its keys.

    A block's key is turned by the position at which the block begins.
    """

    state: str
    """The declared `IndexKeys` state."""
    recent: str
    """The declared `Recent` state."""
    shape: IndexShape
    query_key: Linear
    """All heads' queries and the key, fused in this order."""
    query_norm: RmsNorm[A]
    key_norm: RmsNorm[A]
    rope: Rope

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> Selection:
        """`[R, H]`: what each row reads."""
        heads, dim, pool = self.shape.heads, self.shape.dim, self.shape.pool
        query, key = ops.split(ops.linear(x, self.query_key), (heads * dim, dim))
        query = ops.rope(step, self.query_norm(ops, ops.reshape(query, -1, heads, dim)), self.rope)
        # Every row makes the key of the block that would end with it; only those of complete blocks are kept.
        mean = ops.sum(ops.recent(step, self.recent, key), 1) * (1 / pool)
        key = ops.reshape(self.key_norm(ops, mean), -1, 1, dim)
        key = ops.reshape(ops.rope(step, key, self.rope, shift=1 - pool), -1, dim)
        return ops.index_topk(step, self.state, query, key, None, topk=self.shape.topk, scale=dim**-0.5)


def block_indexer(
    weights: Weights[A], prefix: str, state: str, shape: IndexShape, *, hidden: int, eps: float, rope: Rope
) -> BlockIndexer[A]:
    """The indexer of modules under a prefix (`self_attn.indexer`), whose states begin with a name."""
    return BlockIndexer(
        state=f"{state}.keys",
        recent=f"{state}.recent",
        shape=shape,
        query_key=weights.linear(
            f"{prefix}.index_qk_proj", sizes=((shape.heads + 1) * shape.dim,), columns=hidden, bias=False
        ),
        query_norm=rms_norm(weights, f"{prefix}.q_layernorm", shape.dim, eps, zero_centred=True),
        key_norm=rms_norm(weights, f"{prefix}.k_layernorm", shape.dim, eps, zero_centred=True),
        rope=rope,
    )


def block_indexer_states(state: str, shape: IndexShape, group: Group = "main") -> dict[str, StateSpec]:
    """A key for every complete block, and the keys of the one that is not complete yet."""
    return {
        f"{state}.keys": IndexKeys(shape.dim, shape.pool, group),
        f"{state}.recent": Recent(shape.dim, shape.pool, group),
    }

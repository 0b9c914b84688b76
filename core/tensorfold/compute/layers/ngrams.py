"""Embeddings of hashed token n-grams, injected into residual streams by how well they agree with them.

The hash needs 64-bit integers and the tokens before a row, which the host has: `NgramHash` runs there, in
`Decoder.prepare`, and only the table's row numbers are uploaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import ConvWeight, Embedding, Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import Conv, StateSpec
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights
from tensorfold.errors import WeightsMismatch

__all__ = ["NgramHash", "NgramInjection", "NgramShape", "ngram_hash", "ngram_injection", "ngram_states"]

LEAST_AGREEMENT = 1e-6
"""Below it an agreement counts as this much, before its root is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramShape:
    """The sizes of an n-gram embedding."""

    longest: int
    """Tokens of the longest n-gram; the shortest has two."""
    heads: int
    """Hashes, and parts of the embedding, for each length."""
    rows: int
    """Of the table."""
    width: int
    """Of all parts together."""
    streams: int
    hidden: int
    taps: int
    """Of the convolution, which sees every `longest`-th row."""

    @property
    def parts(self) -> int:
        """Hashes a row."""
        return (self.longest - 1) * self.heads


@dataclass(frozen=True, slots=True, eq=False)
class NgramHash:
    """From tokens to rows of the table: products with a multiplier for each place, xored, modulo a size a hash."""

    shape: NgramShape
    multipliers: NDArray[np.int64]
    """`[longest]`, latest token first."""
    sizes: NDArray[np.int64]
    """`[parts]`: rows of the table that a hash reaches."""
    offsets: NDArray[np.int64]
    """`[parts]`: where they begin."""
    boundary: int
    """The end token: no n-gram reaches over it, and it stands for what is not reached."""

    def __call__(self, step: Step[Any]) -> NDArray[np.int32]:
        """`[R, parts]`."""
        longest, heads = self.shape.longest, self.shape.heads
        before = step.history(longest - 1)
        reached = np.ones(len(before), bool)
        mixed = step.host_ids.astype(np.int64) * self.multipliers[0]
        rows: list[NDArray[np.int64]] = []
        for back in range(1, longest):
            token = before[:, back - 1]
            reached &= (token >= 0) & (token != self.boundary)
            mixed = mixed ^ (np.where(reached, token, self.boundary) * self.multipliers[back])
            part = slice((back - 1) * heads, back * heads)
            rows.append(mixed[:, None] % self.sizes[part] + self.offsets[part])
        return np.concatenate(rows, axis=1).astype(np.int32)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NgramInjection(Generic[A]):
    """What the n-grams add to the streams: a value, gated for each stream by the agreement of its key with the stream,
    and a dilated convolution of the gated values."""

    name: str
    """Of the hash among a Step's inputs."""
    conv_state: str
    """The declared `Conv` state."""
    shape: NgramShape
    table: Embedding
    keys_value: Linear
    """From the embedding: a key for each stream and one value, fused in this order."""
    key_norm: A
    """`[n, H]`, f32, and so the other norms: each stream is normalized alone."""
    stream_norm: A
    conv_norm: A
    eps: float
    conv: ConvWeight

    def __call__(self, ops: Ops[A], step: Step[A], streams: A) -> A:
        """`[R, n, H]` to `[R, n, H]`, to be added to the streams."""
        shape, count, hidden = self.shape, self.shape.streams, self.shape.hidden
        embedded = ops.reshape(ops.embed(step.inputs[self.name], self.table), -1, shape.width)
        keys, value = ops.split(ops.linear(embedded, self.keys_value), (count * hidden, hidden))
        keys = ops.rms_norm(ops.reshape(keys, -1, count, hidden), self.key_norm, self.eps)
        agreement = ops.sum(keys * ops.rms_norm(streams, self.stream_norm, self.eps), -1) * hidden**-0.5
        rooted = ops.sqrt(ops.maximum(ops.abs(agreement), LEAST_AGREEMENT)) * ops.sign(agreement)
        gates = ops.reshape(ops.sigmoid(rooted), -1, count, 1)
        values: A = gates * ops.reshape(value, -1, 1, hidden)
        normed = ops.reshape(ops.rms_norm(values, self.conv_norm, self.eps), -1, count * hidden)
        context = ops.short_conv(step, self.conv_state, normed, self.conv, act="silu")
        added: A = values + ops.reshape(context, -1, count, hidden)
        return added


def ngram_hash(weights: Weights[A], prefix: str, shape: NgramShape, boundary: int) -> NgramHash:
    """The hash of the integer tensors under a prefix (`ple.ple_embedding`).

    Raises:
        WeightsMismatch: they reach beyond the table.
    """
    sizes = weights.ints(f"{prefix}.ngram_heads_vocab_sizes", shape=(shape.parts,))
    offsets = weights.ints(f"{prefix}.ngram_heads_offsets", shape=(shape.parts,))
    if (sizes < 0).any() or (offsets < 0).any() or (offsets + sizes > shape.rows).any():
        raise WeightsMismatch(
            f"{prefix}: ngram_heads_offsets and ngram_heads_vocab_sizes reach beyond the table's {shape.rows} rows"
        )
    return NgramHash(
        shape=shape,
        multipliers=weights.ints(f"{prefix}.layer_multipliers", shape=(shape.longest,)),
        sizes=sizes,
        offsets=offsets,
        boundary=boundary,
    )


def ngram_injection(
    weights: Weights[A], prefix: str, state: str, shape: NgramShape, *, eps: float
) -> NgramInjection[A]:
    """The block of modules under a prefix (`ple`), whose state and input begin with a name; norms are zero-centred."""
    wide = shape.streams * shape.hidden

    def norm(name: str) -> A:
        return weights.vector(f"{prefix}.{name}.weight", add=1.0, shape=(shape.streams, shape.hidden))

    return NgramInjection(
        name=f"{state}.ngrams",
        conv_state=f"{state}.ngram_conv",
        shape=shape,
        table=weights.embedding(
            *_shards(weights, f"{prefix}.ple_embedding.ngram_embedding"), shape=(shape.rows, shape.width // shape.parts)
        ),
        keys_value=weights.linear(
            f"{prefix}.key_proj",
            f"{prefix}.value_proj",
            sizes=(wide, shape.hidden),
            columns=shape.width,
            bias=False,
        ),
        key_norm=norm("norm_key"),
        stream_norm=norm("norm_query"),
        conv_norm=norm("norm_conv"),
        eps=eps,
        conv=weights.conv(f"{prefix}.conv1d", shape=(wide, shape.taps)),
    )


def _shards(weights: Weights[A], table: str) -> list[str]:
    """The table's modules: itself, or its row shards where a checkpoint has cut it."""
    shards: list[str] = []
    while weights.has(f"{table}.shard_{len(shards)}.weight"):
        shards.append(f"{table}.shard_{len(shards)}")
    return shards or [table]


def ngram_states(state: str, shape: NgramShape) -> dict[str, StateSpec]:
    """The convolution's tail."""
    return {f"{state}.ngram_conv": Conv(shape.streams * shape.hidden, shape.taps, dilation=shape.longest)}

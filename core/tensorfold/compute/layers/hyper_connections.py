"""Hyper-connections (arXiv 2409.19606): several residual streams, of which a block reads a mixture and into which its
output is spread, with weights that each row computes from its own streams.

`SinkhornConnection` also mixes the streams among each other, by a matrix that is made doubly stochastic
(manifold-constrained hyper-connections). `GatedConnection` leaves them alone and gates every feature it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.weights import Weights

__all__ = [
    "GatedConnection",
    "GatedMixture",
    "SinkhornConnection",
    "SinkhornWeights",
    "gated_connection",
    "gated_mixture",
    "sinkhorn_connection",
    "spread",
]


def spread(ops: Ops[A], x: A, count: int) -> A:
    """`[R, H]` to `[R, count, H]`: every stream begins as the same row."""
    return ops.concat([ops.reshape(x, -1, 1, x.shape[-1])] * count, axis=1)


# ---- doubly stochastic -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class SinkhornWeights(Generic[A]):
    """How one row's block output and streams become its streams."""

    into: A
    """`[R, n]`, f32: the output's share in each stream."""
    among: A
    """`[R, n, n]`, f32, doubly stochastic: from stream to stream."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SinkhornConnection(Generic[A]):
    """Around one block: `collapse` before it, `expand` after it."""

    count: int
    """n, the number of streams."""
    logits: Linear
    """From the normalized streams `[R, n H]` to n logits of reading, n of writing and n * n of mixing."""
    scales: A
    """`[3]`, f32: of the three kinds of logits."""
    base: A
    """`[2 n + n n]`, f32, added to the scaled logits."""
    norm_eps: float
    iterations: int
    """Of Sinkhorn and Knopp's normalization."""
    eps: float
    """Added to weights and divisors."""

    def collapse(self, ops: Ops[A], streams: A) -> tuple[A, SinkhornWeights[A]]:
        """`[R, n, H]` to the block's input `[R, H]`."""
        n = self.count
        flat = ops.rms_norm(ops.reshape(streams, -1, n * streams.shape[-1]), None, self.norm_eps)
        sizes = (n, n, n * n)
        parts = ops.split(ops.linear(flat, self.logits), sizes)
        scales, bases = ops.split(self.scales, (1, 1, 1)), ops.split(self.base, sizes)
        reading, writing, mixing = (
            logits * scale + base for logits, scale, base in zip(parts, scales, bases, strict=True)
        )
        read = ops.mix(ops.sigmoid(reading) + self.eps, streams)
        among = ops.softmax(ops.reshape(mixing, -1, n, n)) + self.eps
        return read, SinkhornWeights(ops.sigmoid(writing) * 2.0, ops.sinkhorn(among, self.iterations, self.eps))

    def expand(self, ops: Ops[A], streams: A, output: A, weights: SinkhornWeights[A]) -> A:
        """The streams `[R, n, H]` mixed, plus the block's output `[R, H]` in its shares."""
        shares = ops.reshape(weights.into, -1, 1, self.count)
        into = ops.mix(shares, ops.reshape(output, -1, 1, output.shape[-1]))
        expanded: A = ops.mix(weights.among, streams) + into
        return expanded


def sinkhorn_connection(
    weights: Weights[A], prefix: str, *, count: int, hidden: int, norm_eps: float, iterations: int, eps: float
) -> SinkhornConnection[A]:
    """The connection of parameters `prefix_fn`, `prefix_scale` and `prefix_base`."""
    logits = 2 * count + count * count
    return SinkhornConnection(
        count=count,
        logits=weights.matrix(f"{prefix}_fn", shape=(logits, count * hidden)),
        scales=weights.vector(f"{prefix}_scale", shape=(3,)),
        base=weights.vector(f"{prefix}_base", shape=(logits,)),
        norm_eps=norm_eps,
        iterations=iterations,
        eps=eps,
    )


# ---- gated -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class GatedMixture(Generic[A]):
    """The mean of the normalized streams, each feature of each stream gated by a low-rank map of all of them."""

    norm: A
    """`[n, H]`, f32: each stream is normalized alone."""
    eps: float
    down: Linear
    """From the normalized streams `[R, n H]` to the rank of the gates."""
    gates: Linear
    """From there to a logit for every feature of every stream."""

    def __call__(self, ops: Ops[A], streams: A) -> A:
        """`[R, n, H]` to `[R, H]`."""
        normed = ops.rms_norm(streams, self.norm, self.eps)
        return _gated(ops, normed, ops.linear(_flat(ops, normed), self.down), self.gates)


@dataclass(frozen=True, slots=True, eq=False)
class GatedConnection(Generic[A]):
    """Around one block: `collapse` before it, which reads as `GatedMixture` does, and `inject` after it."""

    norm: A
    """`[n, H]`, f32."""
    eps: float
    down: Linear
    """From the normalized streams to the rank of the gates and n logits of writing, fused in this order."""
    gates: Linear

    def collapse(self, ops: Ops[A], streams: A) -> tuple[A, A]:
        """`[R, n, H]` to the block's input `[R, H]` and its output's shares `[R, n]` in the streams."""
        normed = ops.rms_norm(streams, self.norm, self.eps)
        low, writing = ops.split(ops.linear(_flat(ops, normed), self.down), self.down.sizes)
        shares: A = ops.sigmoid(writing * (1 / streams.shape[1])) * 2.0
        return _gated(ops, normed, low, self.gates), shares

    def inject(self, ops: Ops[A], streams: A, output: A, shares: A) -> A:
        """The streams `[R, n, H]`, plus the block's output `[R, H]` in its shares."""
        into = ops.reshape(shares, *shares.shape, 1) * ops.reshape(output, -1, 1, output.shape[-1])
        injected: A = streams + into
        return injected


def _flat(ops: Ops[A], streams: A) -> A:
    return ops.reshape(streams, -1, streams.shape[1] * streams.shape[2])


def _gated(ops: Ops[A], normed: A, low: A, gates: Linear) -> A:
    """`[R, n, H]` and `[R, rank]` to `[R, H]`."""
    per_stream = 1 / normed.shape[1]
    logits = ops.linear(ops.activate(low * per_stream, "silu"), gates)
    mean: A = ops.sum(ops.reshape(ops.sigmoid(logits), *normed.shape) * normed, 1) * per_stream
    return mean


def gated_mixture(
    weights: Weights[A], prefix: str, *, count: int, hidden: int, rank: int, eps: float
) -> GatedMixture[A]:
    """The mixture of modules under a prefix; its norm is zero-centred."""
    return GatedMixture(
        norm=weights.vector(f"{prefix}.hc_norm.weight", add=1.0, shape=(count, hidden)),
        eps=eps,
        down=weights.linear(f"{prefix}.input_mix_weight_down", sizes=(rank,), columns=count * hidden, bias=False),
        gates=weights.linear(f"{prefix}.input_mix_weight_up", sizes=(count * hidden,), columns=rank, bias=False),
    )


def gated_connection(
    weights: Weights[A], prefix: str, *, count: int, hidden: int, rank: int, eps: float
) -> GatedConnection[A]:
    """The connection of modules under a prefix; its norm is zero-centred."""
    return GatedConnection(
        norm=weights.vector(f"{prefix}.hc_norm.weight", add=1.0, shape=(count, hidden)),
        eps=eps,
        down=weights.linear(
            f"{prefix}.input_mix_weight_down",
            f"{prefix}.block_inject_weight",
            sizes=(rank, count),
            columns=count * hidden,
            bias=False,
        ),
        gates=weights.linear(f"{prefix}.input_mix_weight_up", sizes=(count * hidden,), columns=rank, bias=False),
    )

"""Kimi delta attention (KDA, arXiv 2510.26692): a gated delta rule whose state decays feature by feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers.norm import RmsNorm, rms_norm
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import ConvWeight, Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import Conv, Recurrent, StateSpec
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights

__all__ = ["KimiDelta", "KimiShape", "kimi_delta", "kimi_delta_states"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiShape:
    """The sizes of the rule."""

    heads: int
    dim: int
    """Of a head's query, key and value, and the rank of both gates."""
    taps: int
    """Of the short convolution."""

    @property
    def width(self) -> int:
        """Of all heads together."""
        return self.heads * self.dim


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KimiDelta(Generic[A]):
    """Short convolutions of query, key and value, the rule, and an output gate."""

    conv_state: str
    """The declared `Conv` state."""
    delta_state: str
    """The declared `Recurrent` state."""
    shape: KimiShape
    inputs: Linear
    """Query, key, value, step, low-rank decay, low-rank output gate, fused in this order."""
    conv: ConvWeight
    decay: Linear
    """From its rank to a logit for every feature of every head."""
    decay_bias: A
    """`[heads, dim]`, f32, added to these logits."""
    rate: A
    """`[heads, 1]`, f32, above 0: how fast a head decays."""
    floor: float | None
    """The lowest log decay of a row, of which a sigmoid takes a part; None: softplus takes any."""
    gate: Linear
    """From its rank to a logit for every feature of every head."""
    norm: RmsNorm[A]
    out: Linear

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        heads, dim, width = self.shape.heads, self.shape.dim, self.shape.width
        mixed, beta, decay, gate = ops.split(ops.linear(x, self.inputs), (3 * width, heads, dim, dim))
        mixed = ops.short_conv(step, self.conv_state, mixed, self.conv, act="silu")
        query, key, value = (ops.reshape(each, -1, heads, dim) for each in ops.split(mixed, (width,) * 3))
        logits = ops.reshape(ops.linear(decay, self.decay), -1, heads, dim) + self.decay_bias
        read = ops.gated_delta(
            step,
            self.delta_state,
            query,
            key,
            value,
            self._log_decay(ops, logits),
            ops.sigmoid(beta),
            scale=dim**-0.5,
        )
        opening = ops.reshape(ops.linear(gate, self.gate), -1, heads, dim)
        read = ops.gated_rms_norm(read, opening, self.norm.weight, self.norm.eps, gate_first=False, act="sigmoid")
        return ops.linear(ops.reshape(read, -1, width), self.out)

    def _log_decay(self, ops: Ops[A], logits: A) -> A:
        """`[R, heads, dim]`, f32, below 0."""
        lowered: A = (
            ops.softplus(logits) * self.rate * -1.0
            if self.floor is None
            else ops.sigmoid(logits * self.rate) * self.floor
        )
        return lowered


def kimi_delta(
    weights: Weights[A], prefix: str, state: str, shape: KimiShape, *, hidden: int, eps: float, floor: float | None
) -> KimiDelta[A]:
    """The layer of modules under a prefix (`self_attn`), whose states begin with a name."""
    heads, dim, width = shape.heads, shape.dim, shape.width
    return KimiDelta(
        conv_state=f"{state}.conv",
        delta_state=f"{state}.delta",
        shape=shape,
        inputs=weights.linear(
            *(f"{prefix}.{name}_proj" for name in ("q", "k", "v", "b", "f_a", "g_a")),
            sizes=(width, width, width, heads, dim, dim),
            columns=hidden,
            bias=False,
        ),
        conv=weights.conv(*(f"{prefix}.{name}_conv1d" for name in "qkv"), shape=(3 * width, shape.taps)),
        decay=weights.linear(f"{prefix}.f_b_proj", sizes=(width,), columns=dim, bias=False),
        decay_bias=weights.vector(f"{prefix}.dt_bias", shape=(heads, dim)),
        rate=weights.vector(f"{prefix}.A_log", fn="exp", shape=(heads, 1)),
        floor=floor,
        gate=weights.linear(f"{prefix}.g_b_proj", sizes=(width,), columns=dim, bias=False),
        norm=rms_norm(weights, f"{prefix}.o_norm", dim, eps),
        out=weights.linear(f"{prefix}.o_proj", sizes=(hidden,), columns=width, bias=False),
    )


def kimi_delta_states(state: str, shape: KimiShape) -> dict[str, StateSpec]:
    """The convolution's tail and the rule's state."""
    return {
        f"{state}.conv": Conv(3 * shape.width, shape.taps),
        f"{state}.delta": Recurrent((shape.heads, shape.dim, shape.dim)),
    }

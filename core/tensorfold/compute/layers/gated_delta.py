"""The gated delta net of Qwen3.5 and its kin: a short convolution, the gated delta rule, a gated norm (arXiv 2412.06464)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Activation, ConvWeight, Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import Conv, Group, Recurrent, StateSpec
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights

__all__ = ["DeltaSizes", "GatedDelta", "gated_delta"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSizes:
    """The shape of a gated delta net."""

    key_heads: int
    value_heads: int
    """A multiple of `key_heads`: neighbours share a key head."""
    key_dim: int
    value_dim: int
    taps: int
    """Of the convolution."""

    @property
    def keys(self) -> int:
        """Width of all queries, and of all keys."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Width of all values."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """What is convolved: queries, keys and values."""
        return 2 * self.keys + self.values

    def states(self, name: str, group: Group = "main") -> dict[str, StateSpec]:
        """The convolution's tail and the recurrent state, under names that begin so."""
        return {
            f"{name}.conv": Conv(self.channels, self.taps, group=group),
            f"{name}.delta": Recurrent((self.value_heads, self.key_dim, self.value_dim), group=group),
        }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GatedDelta(Generic[A]):
    """A linear-attention mixer over the states `name.conv` and `name.delta`."""

    name: str
    sizes: DeltaSizes
    inputs: Linear
    """Query, key and value; output gate; strength; decay; fused in this order."""
    conv: ConvWeight
    decay: A
    """`[value heads]`, -exp(A_log)."""
    step_bias: A
    """`[value heads]`."""
    norm: A
    """`[value dim]`."""
    eps: float
    act: Activation
    """Of the convolution."""
    out: Linear
    gate_act: Activation = "silu"
    """Of the output gate."""

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        sizes = self.sizes
        heads = (-1, sizes.value_heads, sizes.value_dim)
        mixed, gate, strength, decay = ops.split(
            ops.linear(x, self.inputs), (sizes.channels, sizes.values, sizes.value_heads, sizes.value_heads)
        )
        mixed = ops.short_conv(step, f"{self.name}.conv", mixed, self.conv, act=self.act)
        q, k, v = ops.split(mixed, (sizes.keys, sizes.keys, sizes.values))
        out = ops.gated_delta(
            step,
            f"{self.name}.delta",
            ops.reshape(q, -1, sizes.key_heads, sizes.key_dim),
            ops.reshape(k, -1, sizes.key_heads, sizes.key_dim),
            ops.reshape(v, *heads),
            ops.softplus(decay + self.step_bias) * self.decay,
            ops.sigmoid(strength),
            scale=sizes.key_dim**-0.5,
        )
        gate = ops.reshape(gate, *heads)
        out = ops.gated_rms_norm(out, gate, self.norm, self.eps, gate_first=False, act=self.gate_act)
        return ops.linear(ops.reshape(out, -1, sizes.values), self.out)


def gated_delta(
    weights: Weights[A],
    prefix: str,
    name: str,
    *,
    hidden: int,
    sizes: DeltaSizes,
    eps: float,
    act: Activation,
    gate_act: Activation = "silu",
) -> GatedDelta[A]:
    """The block of modules `prefix.in_proj_{qkv,z,b,a}`, `prefix.conv1d`, `prefix.norm` and `prefix.out_proj`."""
    return GatedDelta(
        name=name,
        sizes=sizes,
        inputs=weights.linear(
            *(f"{prefix}.in_proj_{part}" for part in ("qkv", "z", "b", "a")),
            sizes=(sizes.channels, sizes.values, sizes.value_heads, sizes.value_heads),
            columns=hidden,
            bias=False,
        ),
        conv=weights.conv(f"{prefix}.conv1d", shape=(sizes.channels, sizes.taps), bias=False),
        decay=weights.vector(f"{prefix}.A_log", fn="neg_exp", shape=(sizes.value_heads,)),
        step_bias=weights.vector(f"{prefix}.dt_bias", shape=(sizes.value_heads,)),
        norm=weights.vector(f"{prefix}.norm.weight", shape=(sizes.value_dim,)),
        eps=eps,
        act=act,
        out=weights.linear(f"{prefix}.out_proj", sizes=(hidden,), columns=sizes.values, bias=False),
        gate_act=gate_act,
    )

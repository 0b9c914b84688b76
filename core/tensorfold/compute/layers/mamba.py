"""The Mamba-2 mixer: a short convolution, state space duality, a gated group norm (arXiv 2405.21060)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic

from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Activation, ConvWeight, Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import Conv, Group, Recurrent, StateSpec
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights

__all__ = ["Mamba", "MambaSizes", "mamba"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MambaSizes:
    """The shape of a Mamba-2 mixer."""

    heads: int
    head_dim: int
    groups: int
    """Divides `heads`: the heads of a group share what is written and read, and are normalized together."""
    state: int
    """Of each channel of a head."""
    taps: int
    """Of the convolution."""
    bias: bool
    """Of the projections."""
    conv_bias: bool

    @property
    def values(self) -> int:
        """Width of all heads."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """What is convolved: values, and for each group what is written (b) and read (c)."""
        return self.values + 2 * self.groups * self.state

    def states(self, name: str, group: Group = "main") -> dict[str, StateSpec]:
        """The convolution's tail and the recurrent state, under names that begin so."""
        return {
            f"{name}.conv": Conv(self.channels, self.taps, group=group),
            f"{name}.ssd": Recurrent((self.heads, self.head_dim, self.state), group=group),
        }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Mamba(Generic[A]):
    """A state-space mixer over the states `name.conv` and `name.ssd`."""

    name: str
    sizes: MambaSizes
    inputs: Linear
    """Gate; values, written and read; step; in this order."""
    conv: ConvWeight
    decay: A
    """`[heads]`, -exp(A_log)."""
    step_bias: A
    """`[heads]`."""
    step_limits: tuple[float, float]
    """The step is kept between these; (0, inf): it is left alone."""
    skip: A
    """`[heads]`, what passes by the recurrence."""
    norm: A
    """`[groups, values / groups]`."""
    eps: float
    act: Activation
    """Of the convolution and of the gate."""
    out: Linear

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        sizes = self.sizes
        shared = sizes.groups * sizes.state
        gate, mixed, dt = ops.split(ops.linear(x, self.inputs), (sizes.values, sizes.channels, sizes.heads))
        mixed = ops.short_conv(step, f"{self.name}.conv", mixed, self.conv, act=self.act)
        values, b, c = ops.split(mixed, (sizes.values, shared, shared))
        out = ops.ssd(
            step,
            f"{self.name}.ssd",
            ops.reshape(values, -1, sizes.heads, sizes.head_dim),
            self._limited(ops, ops.softplus(dt + self.step_bias)),
            self.decay,
            ops.reshape(b, -1, sizes.groups, sizes.state),
            ops.reshape(c, -1, sizes.groups, sizes.state),
            self.skip,
        )
        grouped = (-1, sizes.groups, sizes.values // sizes.groups)
        out = ops.gated_rms_norm(
            ops.reshape(out, *grouped), ops.reshape(gate, *grouped), self.norm, self.eps, gate_first=True, act=self.act
        )
        return ops.linear(ops.reshape(out, -1, sizes.values), self.out)

    def _limited(self, ops: Ops[A], dt: A) -> A:
        low, high = self.step_limits
        if low > 0:
            dt = ops.maximum(dt, low)
        if high < math.inf:
            dt = ops.maximum(dt * -1.0, -high) * -1.0
        return dt


def mamba(
    weights: Weights[A],
    prefix: str,
    name: str,
    *,
    hidden: int,
    sizes: MambaSizes,
    eps: float,
    act: Activation,
    step_limits: tuple[float, float],
) -> Mamba[A]:
    """The block of modules `prefix.in_proj`, `prefix.conv1d`, `prefix.norm` and `prefix.out_proj`."""
    return Mamba(
        name=name,
        sizes=sizes,
        inputs=weights.linear(
            f"{prefix}.in_proj", sizes=(sizes.values + sizes.channels + sizes.heads,), columns=hidden, bias=sizes.bias
        ),
        conv=weights.conv(f"{prefix}.conv1d", shape=(sizes.channels, sizes.taps), bias=sizes.conv_bias),
        decay=weights.vector(f"{prefix}.A_log", fn="neg_exp", shape=(sizes.heads,)),
        step_bias=weights.vector(f"{prefix}.dt_bias", shape=(sizes.heads,)),
        step_limits=step_limits,
        skip=weights.vector(f"{prefix}.D", shape=(sizes.heads,)),
        norm=weights.vector(f"{prefix}.norm.weight", shape=(sizes.groups, sizes.values // sizes.groups)),
        eps=eps,
        act=act,
        out=weights.linear(f"{prefix}.out_proj", sizes=(hidden,), columns=sizes.values, bias=sizes.bias),
    )

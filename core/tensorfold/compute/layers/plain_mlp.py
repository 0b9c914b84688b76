"""The feed-forward block without a gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Activation, Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights

__all__ = ["PlainMlp", "plain_mlp"]


@dataclass(frozen=True, slots=True, eq=False)
class PlainMlp(Generic[A]):
    """down(act(up(x)))."""

    up: Linear
    down: Linear
    act: Activation

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        return ops.linear(ops.activate(ops.linear(x, self.up), self.act), self.down)


def plain_mlp(
    weights: Weights[A], prefix: str, *, hidden: int, width: int, act: Activation, bias: bool | None = None
) -> PlainMlp[A]:
    """The block of modules `prefix.up_proj` and `prefix.down_proj`; `bias` as in `Weights.linear`."""
    return PlainMlp(
        up=weights.linear(f"{prefix}.up_proj", sizes=(width,), columns=hidden, bias=bias),
        down=weights.linear(f"{prefix}.down_proj", sizes=(hidden,), columns=width, bias=bias),
        act=act,
    )

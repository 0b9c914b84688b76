"""The gated feed-forward block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Activation, Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights

__all__ = ["GatedMlp", "gated_mlp"]


@dataclass(frozen=True, slots=True, eq=False)
class GatedMlp(Generic[A]):
    """down(act(gate(x)) * up(x)): SwiGLU, GeGLU and their like."""

    gate_up: Linear
    """Gate and up, fused in this order."""
    down: Linear
    act: Activation
    limit: float | None = None
    """Bounds gate above and up on both sides; None: no bound."""

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        return ops.linear(ops.glu(ops.linear(x, self.gate_up), self.act, self.limit), self.down)


def gated_mlp(
    weights: Weights[A],
    prefix: str,
    *,
    hidden: int,
    width: int,
    act: Activation,
    limit: float | None = None,
    bias: bool | None = None,
) -> GatedMlp[A]:
    """The block of modules `prefix.gate_proj`, `prefix.up_proj` and `prefix.down_proj`; `bias` as in `Weights.linear`."""
    return GatedMlp(
        gate_up=weights.linear(
            f"{prefix}.gate_proj", f"{prefix}.up_proj", sizes=(width, width), columns=hidden, bias=bias
        ),
        down=weights.linear(f"{prefix}.down_proj", sizes=(hidden,), columns=width, bias=bias),
        act=act,
        limit=limit,
    )

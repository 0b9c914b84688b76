"""Normalization with its weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.contracts.arrays import A
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.weights import Weights

__all__ = ["RmsNorm", "rms_norm"]


@dataclass(frozen=True, slots=True, eq=False)
class RmsNorm(Generic[A]):
    """Root mean square normalization over the last axis."""

    weight: A
    """`[d]`, f32; a zero-centred weight has its 1 already."""
    eps: float

    def __call__(self, ops: Ops[A], x: A) -> A:
        """`[..., d]` to `[..., d]`."""
        return ops.rms_norm(x, self.weight, self.eps)


def rms_norm(weights: Weights[A], prefix: str, width: int, eps: float, *, zero_centred: bool = False) -> RmsNorm[A]:
    """The norm of module `prefix`; `zero_centred` weights are stored as w and applied as 1 + w."""
    return RmsNorm(weights.vector(f"{prefix}.weight", add=1.0 if zero_centred else 0.0, shape=(width,)), eps)

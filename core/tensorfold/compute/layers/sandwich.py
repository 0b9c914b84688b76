"""The residual layer that normalizes what goes into a block and what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers.block import Block
from tensorfold.compute.layers.norm import RmsNorm
from tensorfold.contracts.arrays import A
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step

__all__ = ["SandwichLayer"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SandwichLayer(Generic[A]):
    """x + after(mixer(before(x))), then the same around the feed-forward."""

    mixer_norm: RmsNorm[A]
    mixer: Block[A]
    mixed_norm: RmsNorm[A]
    mlp_norm: RmsNorm[A]
    mlp: Block[A]
    out_norm: RmsNorm[A]

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        mixed: A = x + self.mixed_norm(ops, self.mixer(ops, step, self.mixer_norm(ops, x)))
        out: A = mixed + self.out_norm(ops, self.mlp(ops, step, self.mlp_norm(ops, mixed)))
        return out

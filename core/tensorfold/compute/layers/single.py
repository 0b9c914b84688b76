"""The residual layer with one block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers.block import Block
from tensorfold.compute.layers.norm import RmsNorm
from tensorfold.contracts.arrays import A
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step

__all__ = ["SingleLayer"]


@dataclass(frozen=True, slots=True, eq=False)
class SingleLayer(Generic[A]):
    """x + block(norm(x)), where the block is a mixer or a feed-forward."""

    norm: RmsNorm[A]
    block: Block[A]

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        out: A = x + self.block(ops, step, self.norm(ops, x))
        return out

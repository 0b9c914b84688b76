"""The pre-norm residual layer of nearly every decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers.block import Block
from tensorfold.compute.layers.norm import RmsNorm
from tensorfold.contracts.arrays import A
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step

__all__ = ["ResidualLayer"]


@dataclass(frozen=True, slots=True, eq=False)
class ResidualLayer(Generic[A]):
    """x + mixer(norm(x)), then x + mlp(norm(x))."""

    mixer_norm: RmsNorm[A]
    mixer: Block[A]
    """Mixes rows of a sequence: attention, a recurrence."""
    mlp_norm: RmsNorm[A]
    mlp: Block[A]
    """Works on each row alone."""

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        mixed: A = x + self.mixer(ops, step, self.mixer_norm(ops, x))
        out: A = mixed + self.mlp(ops, step, self.mlp_norm(ops, mixed))
        return out

"""The layer with experts beside its feed-forward: both read the attention's rows, each through norms of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers import Block, RmsNorm
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Experts, Linear, Router
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step

__all__ = ["ExpertsLayer"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExpertsLayer(Generic[A]):
    """A sandwich layer whose second filling is a feed-forward plus a mixture of experts."""

    mixer_norm: RmsNorm[A]
    mixer: Block[A]
    mixed_norm: RmsNorm[A]
    mlp_norm: RmsNorm[A]
    mlp: Block[A]
    mlp_out_norm: RmsNorm[A]
    router_norm: RmsNorm[A]
    """With the router's scale as its weight."""
    gate: Linear
    router: Router
    experts_norm: RmsNorm[A]
    experts: Experts
    experts_out_norm: RmsNorm[A]
    out_norm: RmsNorm[A]

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        mixed: A = x + self.mixed_norm(ops, self.mixer(ops, step, self.mixer_norm(ops, x)))
        dense = self.mlp_out_norm(ops, self.mlp(ops, step, self.mlp_norm(ops, mixed)))
        ids, weights = ops.route(ops.linear(self.router_norm(ops, mixed), self.gate, wide=True), self.router)
        chosen = ops.experts(self.experts_norm(ops, mixed), ids, weights, self.experts)
        both: A = dense + self.experts_out_norm(ops, chosen)
        out: A = mixed + self.out_norm(ops, both)
        return out

"""A mixture of experts, alone or beside an expert that every row passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers.block import Block
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Activation, Experts, Linear, Router
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights

__all__ = ["Mixture", "mixture"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Mixture(Generic[A]):
    """The chosen experts' outputs, weighed and summed, plus the shared expert's."""

    gate: Linear
    """Logits of the experts."""
    router: Router
    experts: Experts
    bias: A | None = None
    """`[experts]`, f32: added to the scores that choose, not to those that weigh."""
    shared: Block[A] | None = None
    shared_gate: Linear | None = None
    """One logit, by whose sigmoid the shared expert's output is multiplied."""

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        ids, weights = ops.route(ops.linear(x, self.gate, wide=True), self.router, self.bias)
        chosen = ops.experts(x, ids, weights, self.experts)
        if self.shared is None:
            return chosen
        shared = self.shared(ops, step, x)
        if self.shared_gate is not None:
            shared = ops.sigmoid(ops.linear(x, self.shared_gate)) * shared
        both: A = chosen + shared
        return both


def mixture(
    weights: Weights[A],
    prefix: str,
    *,
    hidden: int,
    width: int,
    count: int,
    router: Router,
    act: Activation,
    limit: float | None = None,
    up: tuple[str, ...] = ("gate_proj", "up_proj"),
    bias: str | None = None,
    shared: Block[A] | None = None,
    shared_gate: str | None = None,
    experts: str = "experts",
) -> Mixture[A]:
    """The block of modules `prefix.gate` and `prefix.experts`.

    Args:
        width: of one expert.
        count: of experts.
        limit: as in `Ops.glu`.
        up: as in `Weights.experts`.
        bias: the tensor under the prefix that holds the choosing bias (`gate.e_score_correction_bias`).
        shared: the expert that every row passes.
        shared_gate: the module under the prefix that gives the shared expert's logit.
        experts: the module under the prefix that holds them, where a converter renames it.
    """

    def gate(name: str, size: int) -> Linear:
        return weights.linear(f"{prefix}.{name}", sizes=(size,), columns=hidden, bias=False)

    return Mixture(
        gate=gate("gate", count),
        router=router,
        experts=weights.experts(f"{prefix}.{experts}", count, up=up, act=act, limit=limit, shape=(width, hidden)),
        bias=None if bias is None else weights.vector(f"{prefix}.{bias}", shape=(count,)),
        shared=shared,
        shared_gate=None if shared_gate is None else gate(shared_gate, 1),
    )

"""The mixture: experts without gates, a shared one beside them, and in the larger models a narrower width inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers import Block
from tensorfold.compute.layers.moe import Mixture
from tensorfold.compute.layers.plain_mlp import plain_mlp
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Experts, Linear, Router
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_nemotron.config import MixtureSizes, NemotronConfig

__all__ = ["LatentMixture", "mixture"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LatentMixture(Generic[A]):
    """A mixture whose experts work on narrowed rows; gate and shared expert see the whole ones."""

    gate: Linear
    router: Router
    bias: A
    """`[experts]`, f32: takes part in the choice and not in the weights."""
    narrow: Linear
    experts: Experts
    widen: Linear
    shared: Block[A]

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        ids, weights = ops.route(ops.linear(x, self.gate, wide=True), self.router, self.bias)
        chosen = ops.experts(ops.linear(x, self.narrow), ids, weights, self.experts)
        both: A = ops.linear(chosen, self.widen) + self.shared(ops, step, x)
        return both


def mixture(config: NemotronConfig, weights: Weights[A], prefix: str) -> Block[A]:
    """The block of the modules under a prefix."""
    sizes = config.mixture
    if sizes is None:
        raise CheckpointUnsupported(f"{prefix} is a mixture of experts, and the config has no layer of that kind")
    gate = weights.linear(f"{prefix}.gate", sizes=(sizes.count,), columns=config.hidden, bias=False)
    bias = weights.vector(f"{prefix}.gate.e_score_correction_bias", shape=(sizes.count,))
    experts = _experts(config, sizes, weights, prefix)
    shared = weights.block(
        plain_mlp(
            weights,
            f"{prefix}.shared_experts",
            hidden=config.hidden,
            width=sizes.shared_width,
            act=config.act,
            bias=config.mlp_bias,
        )
    )
    if sizes.inner is None:
        return Mixture(gate=gate, router=sizes.router, experts=experts, bias=bias, shared=shared)
    return LatentMixture(
        gate=gate,
        router=sizes.router,
        bias=bias,
        narrow=weights.linear(
            f"{prefix}.fc1_latent_proj", sizes=(sizes.inner,), columns=config.hidden, bias=config.mlp_bias
        ),
        experts=experts,
        widen=weights.linear(
            f"{prefix}.fc2_latent_proj", sizes=(config.hidden,), columns=sizes.inner, bias=config.mlp_bias
        ),
        shared=shared,
    )


def _experts(config: NemotronConfig, sizes: MixtureSizes, weights: Weights[A], prefix: str) -> Experts:
    shape = (sizes.width, sizes.inner or config.hidden)
    stacked = f"{prefix}.switch_mlp"  # MLX's names
    if weights.has(f"{stacked}.fc1.weight"):
        return weights.experts(stacked, sizes.count, up=("fc1",), down="fc2", act=config.act, shape=shape)
    return weights.experts(f"{prefix}.experts", sizes.count, up=("up_proj",), act=config.act, shape=shape)

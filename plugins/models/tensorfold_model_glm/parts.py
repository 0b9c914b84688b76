"""A layer's parts, built from the config: attention, linear mixer, feed-forward blocks; and the states they keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers import Block, gated_mlp
from tensorfold.compute.layers.kimi_delta import kimi_delta, kimi_delta_states
from tensorfold.compute.layers.latent_attention import LatentAttention, latent_attention
from tensorfold.compute.layers.moe import mixture
from tensorfold.compute.layers.sparse_index import latent_indexer, latent_indexer_states
from tensorfold.contracts.arrays import A
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import Group, Latent, StateSpec
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_glm.config import GlmConfig, KimiConfig
from tensorfold_model_glm.schedule import Layer, Mixer

__all__ = ["ChoosingAttention", "attention", "feed_forward", "layer_states", "linear_mixer"]


@dataclass(frozen=True, slots=True, eq=False)
class ChoosingAttention(Generic[A]):
    """Latent attention whose own indexer chooses for no other layer."""

    attention: LatentAttention[A]

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        seen, _ = self.attention(ops, step, x)
        return seen


def attention(config: GlmConfig, weights: Weights[A], prefix: str, state: str, mixer: Mixer) -> LatentAttention[A]:
    """The attention of a layer's `self_attn`, whose states begin with a name."""
    indexer = None
    if mixer is Mixer.INDEXED:
        indexer = weights.block(
            latent_indexer(
                weights,
                f"{prefix}.indexer",
                f"{state}.index",
                config.index,
                hidden=config.hidden,
                compressed=config.attention.query_rank,
                rope=config.rope,
            )
        )
    return weights.block(
        latent_attention(
            weights,
            prefix,
            f"{state}.latent",
            config.attention,
            hidden=config.hidden,
            norm_eps=config.latent_eps,
            rope=config.rope,
            indexer=indexer,
        )
    )


def linear_mixer(config: GlmConfig, weights: Weights[A], prefix: str, state: str) -> Block[A]:
    """The linear mixer of a layer's `self_attn`, whose states begin with a name."""
    kimi = _kimi(config)
    return weights.block(
        kimi_delta(weights, prefix, state, kimi.shape, hidden=config.hidden, eps=config.eps, floor=kimi.floor)
    )


def feed_forward(config: GlmConfig, weights: Weights[A], prefix: str, *, sparse: bool) -> Block[A]:
    """The block of a layer's `mlp`: dense, or experts beside one that every row passes."""

    def dense(name: str, width: int) -> Block[A]:
        return weights.block(
            gated_mlp(weights, name, hidden=config.hidden, width=width, act="silu", limit=config.limit, bias=False)
        )

    if not sparse:
        return dense(prefix, config.width)
    shape = config.mixture
    return weights.block(
        mixture(
            weights,
            prefix,
            hidden=config.hidden,
            width=shape.width,
            count=shape.experts,
            router=shape.router,
            act="silu",
            limit=config.limit,
            bias="gate.e_score_correction_bias",
            shared=dense(f"{prefix}.shared_experts", shape.shared),
        )
    )


def layer_states(config: GlmConfig, layer: Layer, state: str, group: Group = "main") -> dict[str, StateSpec]:
    """What one layer keeps, by names that begin with `state`."""
    match layer.mixer:
        case Mixer.LINEAR:
            return kimi_delta_states(state, _kimi(config).shape)
        case Mixer.FOLLOWING:
            return {f"{state}.latent": Latent(config.attention.latent, config.attention.rope, group)}
        case Mixer.INDEXED:
            return {
                f"{state}.latent": Latent(config.attention.latent, config.attention.rope, group),
                **latent_indexer_states(f"{state}.index", config.index, group),
            }


def _kimi(config: GlmConfig) -> KimiConfig:
    if config.kimi is None:
        raise CheckpointUnsupported("a linear layer is only run in GLM-5.3-Flash")
    return config.kimi

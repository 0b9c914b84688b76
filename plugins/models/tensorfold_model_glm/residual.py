"""GLM-5.3's layers: pre-norm residual ones, of which some choose what the ones behind them read as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers import Block, RmsNorm, rms_norm
from tensorfold.compute.layers.latent_attention import LatentAttention
from tensorfold.contracts.arrays import A
from tensorfold.contracts.ops import Ops, Selection
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights
from tensorfold_model_glm.config import GlmConfig
from tensorfold_model_glm.parts import attention, feed_forward
from tensorfold_model_glm.schedule import Layer

__all__ = ["SparseLayer", "SparseLayers", "sparse_layer"]


@dataclass(frozen=True, slots=True, eq=False)
class SparseLayer(Generic[A]):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    attention_norm: RmsNorm[A]
    attention: LatentAttention[A]
    mlp_norm: RmsNorm[A]
    mlp: Block[A]

    def __call__(self, ops: Ops[A], step: Step[A], x: A, chosen: Selection | None) -> tuple[A, Selection | None]:
        """`[R, H]` to `[R, H]`, with the choice for the layers behind."""
        seen, chosen = self.attention(ops, step, self.attention_norm(ops, x), chosen)
        mixed: A = x + seen
        out: A = mixed + self.mlp(ops, step, self.mlp_norm(ops, mixed))
        return out, chosen


@dataclass(frozen=True, slots=True, eq=False)
class SparseLayers(Generic[A]):
    """All layers, in turn."""

    layers: tuple[SparseLayer[A], ...]

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        chosen: Selection | None = None
        for layer in self.layers:
            x, chosen = layer(ops, step, x, chosen)
        return x


def sparse_layer(config: GlmConfig, weights: Weights[A], prefix: str, state: str, layer: Layer) -> SparseLayer[A]:
    """The layer of modules under a prefix, whose states begin with a name."""
    return weights.block(
        SparseLayer(
            attention_norm=rms_norm(weights, f"{prefix}.input_layernorm", config.hidden, config.eps),
            attention=attention(config, weights, f"{prefix}.self_attn", state, layer.mixer),
            mlp_norm=rms_norm(weights, f"{prefix}.post_attention_layernorm", config.hidden, config.eps),
            mlp=feed_forward(config, weights, f"{prefix}.mlp", sparse=layer.sparse),
        )
    )

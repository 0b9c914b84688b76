"""The decoder: pre-norm residual layers of grouped-query attention and a gated feed-forward block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic

from numpy.typing import NDArray

from tensorfold.compute.layers import Block, ResidualLayer, RmsNorm, attention, gated_mlp, rms_norm
from tensorfold.compute.layers.rope import divided
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Embedding, Linear, Rope
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import KV
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights
from tensorfold_model_llama.config import LlamaConfig

__all__ = ["ROPE_FACTORS", "LlamaDecoder", "build", "states"]

ROPE_FACTORS = "model.rope_freqs.weight"
"""What GGUF files hold instead of a rope rule in their metadata; no Hugging Face checkpoint has it."""


@dataclass(frozen=True, slots=True, eq=False)
class LlamaDecoder(Generic[A]):
    """A decoder without a draft head."""

    embedding: Embedding
    layers: tuple[Block[A], ...]
    norm: RmsNorm[A]
    head: Linear

    @property
    def draft(self) -> None:
        """These checkpoints have none."""
        return

    def prepare(self, step: Step[A]) -> Mapping[str, NDArray[Any]]:
        """Nothing is computed on the host."""
        return {}

    def forward(self, ops: Ops[A], step: Step[A]) -> A:
        """The rows after the last norm."""
        x = ops.embed(step.ids, self.embedding)
        for layer in self.layers:
            x = layer(ops, step, x)
        return self.norm(ops, x)

    def logits(self, ops: Ops[A], hidden: A) -> A:
        """`[N, H]` to `[N, V]`."""
        return ops.linear(hidden, self.head)


def states(config: LlamaConfig) -> dict[str, KV]:
    """Keys and values of every layer."""
    return {
        _state(layer): KV(config.kv_heads, config.head_dim, config.head_dim, window)
        for layer, window in enumerate(config.windows)
    }


def _state(layer: int) -> str:
    return f"layers.{layer}.kv"


def build(config: LlamaConfig, weights: Weights[A]) -> LlamaDecoder[A]:
    """The decoder over these weights."""
    # Old exports keep a buffer that is a constant of the config; a value head is left over from training.
    weights.ignore("*.rotary_emb.inv_freq", "v_head.*")
    rope = config.rope
    if weights.has(ROPE_FACTORS):
        rope = divided(rope, weights.floats(ROPE_FACTORS, shape=(config.head_dim // 2,)))
    table = (config.vocabulary, config.hidden)
    embedding = weights.embedding("model.embed_tokens", shape=table)
    return LlamaDecoder(
        embedding=embedding,
        layers=tuple(_layer(config, weights, rope, layer) for layer in range(config.layers)),
        norm=rms_norm(weights, "model.norm", config.hidden, config.eps),
        head=weights.head("lm_head", embedding if config.tied else None, shape=table),
    )


def _layer(config: LlamaConfig, weights: Weights[A], rope: Rope, layer: int) -> Block[A]:
    prefix = f"model.layers.{layer}"
    mixer = attention(
        weights,
        f"{prefix}.self_attn",
        _state(layer),
        hidden=config.hidden,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        rope=rope,
        norm_eps=config.eps if config.variant.qk_norm else None,
        qkv_bias=config.qkv_bias,
        out_bias=config.out_bias,
    )
    mlp = gated_mlp(
        weights, f"{prefix}.mlp", hidden=config.hidden, width=config.width, act=config.act, bias=config.mlp_bias
    )
    return weights.block(
        ResidualLayer(
            mixer_norm=rms_norm(weights, f"{prefix}.input_layernorm", config.hidden, config.eps),
            mixer=weights.block(mixer),
            mlp_norm=rms_norm(weights, f"{prefix}.post_attention_layernorm", config.hidden, config.eps),
            mlp=weights.block(mlp),
        )
    )

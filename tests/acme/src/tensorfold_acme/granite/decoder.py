"""The decoder: pre-norm residual layers, multiplied by constants where Granite is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic

from numpy.typing import NDArray

from tensorfold.compute.layers import Block, RmsNorm, attention, gated_mlp, rms_norm
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Embedding, Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import KV, StateSpec
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights
from tensorfold_acme.granite.config import GraniteConfig


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GraniteLayer(Generic[A]):
    """Attention and a feed-forward, each added to the residual in part."""

    mixer_norm: RmsNorm[A]
    mixer: Block[A]
    mlp_norm: RmsNorm[A]
    mlp: Block[A]
    scale: float

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        x = x + self.mixer(ops, step, self.mixer_norm(ops, x)) * self.scale
        out: A = x + self.mlp(ops, step, self.mlp_norm(ops, x)) * self.scale
        return out


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GraniteDecoder(Generic[A]):
    """A decoder without a draft head."""

    embedding: Embedding
    embedding_scale: float
    layers: tuple[Block[A], ...]
    norm: RmsNorm[A]
    head: Linear
    logit_scale: float

    @property
    def draft(self) -> None:
        """These checkpoints have none."""
        return

    def prepare(self, step: Step[A]) -> Mapping[str, NDArray[Any]]:
        """Nothing is computed on the host."""
        return {}

    def forward(self, ops: Ops[A], step: Step[A]) -> A:
        """The rows after the last norm."""
        x: A = ops.embed(step.ids, self.embedding) * self.embedding_scale
        for layer in self.layers:
            x = layer(ops, step, x)
        return self.norm(ops, x)

    def logits(self, ops: Ops[A], hidden: A) -> A:
        """`[N, H]` to `[N, V]`."""
        logits: A = ops.linear(hidden, self.head) * self.logit_scale
        return logits


def states(config: GraniteConfig) -> dict[str, StateSpec]:
    """Keys and values of every layer."""
    return {
        f"layers.{layer}.kv": KV(config.kv_heads, config.head_dim, config.head_dim) for layer in range(config.layers)
    }


def build(config: GraniteConfig, weights: Weights[A]) -> GraniteDecoder[A]:
    """The decoder over these weights."""
    table = (config.vocabulary, config.hidden)
    embedding = weights.embedding("model.embed_tokens", shape=table)
    return GraniteDecoder(
        embedding=embedding,
        embedding_scale=config.embedding_scale,
        layers=tuple(_layer(config, weights, layer) for layer in range(config.layers)),
        norm=rms_norm(weights, "model.norm", config.hidden, config.eps),
        head=weights.head("lm_head", embedding if config.tied else None, shape=table),
        logit_scale=config.logit_scale,
    )


def _layer(config: GraniteConfig, weights: Weights[A], number: int) -> Block[A]:
    prefix = f"model.layers.{number}"
    mixer = attention(
        weights,
        f"{prefix}.self_attn",
        f"layers.{number}.kv",
        hidden=config.hidden,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        rope=config.rope,
        scale=config.attention_scale,
        qkv_bias=config.attention_bias,
        out_bias=config.attention_bias,
    )
    mlp = gated_mlp(
        weights, f"{prefix}.mlp", hidden=config.hidden, width=config.width, act="silu", bias=config.mlp_bias
    )
    return GraniteLayer(
        mixer_norm=rms_norm(weights, f"{prefix}.input_layernorm", config.hidden, config.eps),
        mixer=weights.block(mixer),
        mlp_norm=rms_norm(weights, f"{prefix}.post_attention_layernorm", config.hidden, config.eps),
        mlp=weights.block(mlp),
        scale=config.residual_scale,
    )

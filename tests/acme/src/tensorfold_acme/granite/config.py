"""A Granite config, read and checked; what this family does not run is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tensorfold.compute.layers.rope import context_window, rope_of
from tensorfold.contracts.handles import Rope
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported

_NOT_RUN: Final[Mapping[str, tuple[str | bool | int | None, ...]]] = MappingProxyType(
    {
        "hidden_act": (None, "silu", "swish"),
        "num_local_experts": (None, 0),
        "layer_types": (None,),
    }
)
"""Keys that ask for other arithmetic than this family's, with the values at which they do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraniteConfig:
    """What the decoder is built from."""

    vocabulary: int
    hidden: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rope: Rope
    window: int
    tied: bool
    attention_bias: bool
    mlp_bias: bool
    embedding_scale: float
    attention_scale: float
    residual_scale: float
    logit_scale: float


def granite_config(config: ModelConfig) -> GraniteConfig:
    """The config of a checkpoint.

    Raises:
        CheckpointUnsupported: naming the key that is missing, impossible, or asks for what is not run.
    """
    for key, allowed in _NOT_RUN.items():
        config.require(key, *allowed)
    hidden, heads = config.positive("hidden_size"), config.positive("num_attention_heads")
    kv_heads = config.positive("num_key_value_heads", heads)
    if heads % kv_heads:
        raise CheckpointUnsupported(
            f"{config.where}: num_attention_heads is {heads}, and must be a multiple of num_key_value_heads {kv_heads}"
        )
    head_dim = config.positive("head_dim", hidden // heads)
    return GraniteConfig(
        vocabulary=config.positive("vocab_size"),
        hidden=hidden,
        width=config.positive("intermediate_size"),
        layers=config.layers(),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        eps=config.get(float, "rms_norm_eps", 1e-6),
        rope=rope_of(config, head_dim),
        window=context_window(config),
        tied=config.get(bool, "tie_word_embeddings", False),
        attention_bias=config.get(bool, "attention_bias", False),
        mlp_bias=config.get(bool, "mlp_bias", False),
        embedding_scale=config.get(float, "embedding_multiplier", 1.0),
        attention_scale=config.get(float, "attention_multiplier", 1.0),
        residual_scale=config.get(float, "residual_multiplier", 1.0),
        logit_scale=1.0 / config.get(float, "logits_scaling", 1.0),
    )

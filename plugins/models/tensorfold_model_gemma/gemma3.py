"""The config of Gemma 3. Defaults are those of transformers' class, on which published configs rely."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from tensorfold.compute.foreign import refuse_foreign
from tensorfold.compute.nested import is_tied, text_config
from tensorfold.contracts.handles import Rope
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_gemma.keys import (
    FULL,
    SLIDING,
    LayerType,
    activation,
    check_heads,
    layer_types,
    layer_window,
    logit_softcap,
    rope_rule,
)
from tensorfold_model_gemma.shape import GemmaConfig, LayerShape

__all__ = ["SCALE_BY_SIZE", "gemma3_config"]

SCALE_BY_SIZE: Final = "attention_scale_by_size"
"""What GGUF files hold instead of `query_pre_attn_scalar`: nothing. llama.cpp goes by the number of layers."""

_LAYERS_27B: Final = 62
"""Layers of the one model whose scores are scaled by hidden / heads and not by the width of a head."""

_NOT_RUN: Final[Mapping[str, tuple[str | bool | int | None, ...]]] = MappingProxyType(
    {
        "use_bidirectional_attention": (None, False),
        # transformers reads it and does not apply it; no published checkpoint has it.
        "attn_logit_softcapping": (None,),
        "num_experts": (None, 0),
        "hidden_size_per_layer_input": (None, 0),
    }
)
"""Keys that ask for other arithmetic, with the values at which they do not."""

_THETAS: Final[Mapping[LayerType, tuple[str, float]]] = MappingProxyType(
    {FULL: ("rope_theta", 1_000_000.0), SLIDING: ("rope_local_base_freq", 10_000.0)}
)
"""Where older configs say the base of each type of layer, and the base when none does."""


def gemma3_config(config: ModelConfig) -> GemmaConfig:
    """What the decoder is built from.

    Raises:
        CheckpointUnsupported: naming the key that is missing, impossible, or asks for what is not run.
    """
    text = text_config(config)
    for key, allowed in _NOT_RUN.items():
        text.require(key, *allowed)
    refuse_foreign(text, own=(*_NOT_RUN, "final_logit_softcapping"))
    heads, kv_heads = text.positive("num_attention_heads", 8), text.positive("num_key_value_heads", 4)
    head_dim = text.positive("head_dim", 256)
    check_heads(text, heads, kv_heads, head_dim)
    hidden, layers = text.positive("hidden_size"), text.layers()
    longest, width = text.positive("max_position_embeddings", 131072), text.positive("intermediate_size")
    types = layer_types(text, layers) or _by_pattern(text, layers)
    ropes = {type: _rope(text, type, head_dim, longest) for type in (SLIDING, FULL)}
    return GemmaConfig(
        generation=3,
        vocabulary=text.positive("vocab_size", 262208),
        hidden=hidden,
        heads=heads,
        layers=tuple(
            LayerShape(
                type=type,
                kv_heads=kv_heads,
                head_dim=head_dim,
                window=layer_window(text, type, 4096, longest),
                rope=ropes[type],
                width=width,
                source=number,
            )
            for number, type in enumerate(types)
        ),
        scale=_scale(text, hidden, heads, head_dim, layers),
        attention_bias=text.get(bool, "attention_bias", False),
        act=activation(text),
        eps=text.get(float, "rms_norm_eps", 1e-6),
        softcap=logit_softcap(text),
        window=longest,
        tied=is_tied(config, default=True),
    )


def _by_pattern(text: ModelConfig, layers: int) -> tuple[LayerType, ...]:
    pattern = text.positive("sliding_window_pattern", 6)
    return tuple(SLIDING if (number + 1) % pattern else FULL for number in range(layers))


def _scale(text: ModelConfig, hidden: int, heads: int, head_dim: int, layers: int) -> float:
    if text.get(bool, SCALE_BY_SIZE, False):
        return 1 / math.sqrt(hidden / heads if layers == _LAYERS_27B else head_dim)
    scalar = text.get(float, "query_pre_attn_scalar", 256.0)
    if not scalar > 0:
        raise CheckpointUnsupported(f"{text.where}: {text.path}query_pre_attn_scalar is {scalar}, and must be above 0")
    return 1 / math.sqrt(scalar)


def _rope(text: ModelConfig, type: LayerType, head_dim: int, longest: int) -> Rope:
    parameters = text.section("rope_parameters")
    if parameters is not None and parameters.values and not parameters.values.keys() <= {SLIDING, FULL}:
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}rope_parameters must have one entry for {SLIDING} and one for {FULL}"
        )
    entry = None if parameters is None else parameters.section(type)
    rule: dict[str, Any] = {} if entry is None else dict(entry.values)
    scaling = text.section("rope_scaling")
    if type == FULL and scaling is not None:
        rule |= scaling.values
    key, base = _THETAS[type]
    if rule.get("rope_theta") is None:
        rule["rope_theta"] = text.get(float, key, base)
    return rope_rule(text, type, rule, head_dim, longest)

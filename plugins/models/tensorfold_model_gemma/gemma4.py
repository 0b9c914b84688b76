"""The config of Gemma 4: dense, with experts, and the E-models. Defaults are those of transformers' class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from tensorfold_model_gemma.shape import GemmaConfig, LayerShape, MixtureSizes, PerLayerSizes

__all__ = ["gemma4_config"]

_NOT_RUN: Final[Mapping[str, tuple[str | bool | int | None, ...]]] = MappingProxyType(
    {
        # `vision` lets an image's tokens see each other; text is causal all the same.
        "use_bidirectional_attention": (None, False, "vision"),
        "attn_logit_softcapping": (None,),
        "query_pre_attn_scalar": (None, 1),
    }
)
"""Keys that ask for other arithmetic, with the values at which they do not."""

_RULES: Final[Mapping[LayerType, Mapping[str, Any]]] = MappingProxyType(
    {
        SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
        FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
    }
)
"""The rotation of each type of layer when the config has no `rope_parameters`."""


@dataclass(frozen=True, slots=True)
class _Heads:
    """What may differ between layers."""

    kv_heads: int
    head_dim: int


def gemma4_config(config: ModelConfig) -> GemmaConfig:
    """What the decoder is built from.

    Raises:
        CheckpointUnsupported: naming the key that is missing, impossible, or asks for what is not run.
    """
    text = text_config(config)
    for key, allowed in _NOT_RUN.items():
        text.require(key, *allowed)
    refuse_foreign(text, own=(*_NOT_RUN, "final_logit_softcapping"))
    vocabulary, longest = text.positive("vocab_size", 262144), text.positive("max_position_embeddings", 131072)
    return GemmaConfig(
        generation=4,
        vocabulary=vocabulary,
        hidden=text.positive("hidden_size"),
        heads=text.positive("num_attention_heads", 8),
        layers=_layers(text, longest),
        scale=1.0,
        attention_bias=text.get(bool, "attention_bias", False),
        act=activation(text),
        eps=text.get(float, "rms_norm_eps", 1e-6),
        softcap=logit_softcap(text),
        window=longest,
        tied=is_tied(config, default=True),
        mixture=_mixture(text),
        per_layer=_per_layer(text, vocabulary),
    )


# ---- layers -------------------------------------------------------------------------------------------------


def _layers(text: ModelConfig, longest: int) -> tuple[LayerShape, ...]:
    count, query_heads = text.layers(), text.positive("num_attention_heads", 8)
    types = _types(text, count)
    heads = _heads(text, types)
    sources = _sources(text, types, heads)
    width = text.positive("intermediate_size")
    wide = text.get(bool, "use_double_wide_mlp", False)
    values_are_keys = text.get(bool, "attention_k_eq_v", False)
    ropes: dict[tuple[LayerType, int], Rope] = {}
    layers: list[LayerShape] = []
    for number, (type, own) in enumerate(zip(types, heads, strict=True)):
        check_heads(text, query_heads, own.kv_heads, own.head_dim)
        key = (type, own.head_dim)
        if key not in ropes:
            ropes[key] = _rope(text, type, own.head_dim, longest)
        layers.append(
            LayerShape(
                type=type,
                kv_heads=own.kv_heads,
                head_dim=own.head_dim,
                window=layer_window(text, type, 512, longest),
                rope=ropes[key],
                width=2 * width if wide and sources[number] != number else width,
                source=sources[number],
                has_values=not (values_are_keys and type == FULL),
            )
        )
    return tuple(layers)


def _types(text: ModelConfig, count: int) -> tuple[LayerType, ...]:
    types = layer_types(text, count)
    if types is None:
        # Every sixth layer sees all, and so does the last.
        return tuple(SLIDING if (number + 1) % 6 and number + 1 < count else FULL for number in range(count))
    if types[-1] != FULL:
        raise CheckpointUnsupported(f"{text.where}: {text.path}layer_types must end with {FULL}")
    return types


def _heads(text: ModelConfig, types: Sequence[LayerType]) -> list[_Heads]:
    """Of each layer: by `per_layer_config`, or by the keys that published configs have instead."""
    base = _Heads(text.positive("num_key_value_heads", 4), text.positive("head_dim", 256))
    section = text.section("per_layer_config")
    if section is not None:
        return [_overridden(section, number, base) for number in range(len(types))]
    kv_heads = base.kv_heads
    if text.get(bool, "attention_k_eq_v", False) and text.get(int, "num_global_key_value_heads", None) is not None:
        kv_heads = text.positive("num_global_key_value_heads")
    full = _Heads(kv_heads, text.positive("global_head_dim", 512))
    return [full if type == FULL else base for type in types]


def _overridden(section: ModelConfig, number: int, base: _Heads) -> _Heads:
    own = section.section(str(number))
    if own is None:
        return base
    unknown = sorted(own.values.keys() - {"head_dim", "num_key_value_heads"})
    if unknown:
        raise CheckpointUnsupported(
            f"{own.where}: {own.path}{unknown[0]} differs from other layers', and only head_dim and"
            " num_key_value_heads may"
        )
    return _Heads(own.positive("num_key_value_heads", base.kv_heads), own.positive("head_dim", base.head_dim))


def _sources(text: ModelConfig, types: Sequence[LayerType], heads: Sequence[_Heads]) -> list[int]:
    """The layer whose keys and values each one reads: the last ones share those of the last of their type before."""
    count = len(types)
    shared = text.get(int, "num_kv_shared_layers", 0)
    first = count - shared
    if not 0 <= shared < count or not set(types[first:]) <= set(types[:first]):
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}num_kv_shared_layers is {shared}, and each of the last {shared} of {count} layers"
            " needs an earlier one of its type"
        )
    last = {type: number for number, type in enumerate(types[:first])}
    sources = [number if number < first else last[type] for number, type in enumerate(types)]
    for number, source in enumerate(sources):
        if heads[number] != heads[source]:
            raise CheckpointUnsupported(
                f"{text.where}: {text.path}per_layer_config gives layer {number} other heads than layer {source},"
                " whose keys it reads"
            )
    return sources


def _rope(text: ModelConfig, type: LayerType, head_dim: int, longest: int) -> Rope:
    text.require("rope_scaling", None)
    parameters = text.section("rope_parameters")
    if parameters is None:
        return rope_rule(text, type, _RULES[type], head_dim, longest)
    entry = parameters.section(type)
    if entry is None:
        raise CheckpointUnsupported(f"{text.where}: {text.path}rope_parameters has no entry for {type}")
    return rope_rule(text, type, entry.values, head_dim, longest)


# ---- what some models add ------------------------------------------------------------------------------------


def _mixture(text: ModelConfig) -> MixtureSizes | None:
    if not text.get(bool, "enable_moe_block", False):
        text.require("num_experts", None, 0)
        return None
    count, chosen = text.positive("num_experts"), text.positive("top_k_experts")
    if chosen > count:
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}top_k_experts is {chosen}, and there are {count} experts"
        )
    return MixtureSizes(count=count, chosen=chosen, width=text.positive("moe_intermediate_size"))


def _per_layer(text: ModelConfig, vocabulary: int) -> PerLayerSizes | None:
    width = text.get(int, "hidden_size_per_layer_input", 256)
    if width == 0:
        return None
    own = text.positive("vocab_size_per_layer_input", 262144)
    if own < vocabulary:
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}vocab_size_per_layer_input is {own}, and there are {vocabulary} tokens"
        )
    return PerLayerSizes(vocabulary=own, width=text.positive("hidden_size_per_layer_input", 256))

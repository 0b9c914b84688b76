"""A Qwen3.5 config, read and checked; what this family does not run is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, cast

from tensorfold.compute.foreign import refuse_foreign
from tensorfold.compute.layers.gated_delta import DeltaSizes
from tensorfold.compute.layers.rope import context_window, rope_of
from tensorfold.compute.nested import is_tied, text_config
from tensorfold.contracts.handles import Activation, Rope
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported

__all__ = ["VARIANTS", "LayerKind", "MixtureSizes", "QwenConfig", "Variant", "qwen_config"]

LayerKind: TypeAlias = Literal["linear_attention", "full_attention"]

_KINDS: Final[tuple[LayerKind, ...]] = ("linear_attention", "full_attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Where the two model types differ. Defaults are those of their transformers config classes."""

    model_types: tuple[str, ...]
    """Of a checkpoint with a vision tower, and of one without."""
    architectures: tuple[str, ...]
    mixture: bool
    """Every feed-forward is a mixture of experts."""
    kv_heads: int
    """When the config does not say."""


VARIANTS: Final[tuple[Variant, ...]] = (
    Variant(
        model_types=("qwen3_5", "qwen3_5_text"),
        architectures=("Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"),
        mixture=False,
        kv_heads=4,
    ),
    Variant(
        model_types=("qwen3_5_moe", "qwen3_5_moe_text"),
        architectures=("Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"),
        mixture=True,
        kv_heads=2,
    ),
)

_NOT_RUN: Final[Mapping[str, tuple[str | bool | int | None, ...]]] = MappingProxyType(
    {
        "hidden_act": (None, "silu", "swish"),
        "attn_output_gate": (None, True),
        "output_gate_type": (None, "silu", "swish"),
        "mamba_ssm_dtype": (None, "float32"),
        "use_sliding_window": (None, False),
        "norm_topk_prob": (None, True),
        "decoder_sparse_step": (None, 1),
        "mtp_num_hidden_layers": (None, 0, 1),
        "mtp_use_dedicated_embeddings": (None, False),
        "hc_count": (None, 0),
        "ple_layer_ids": (None,),
        "indexer_n_heads": (None, 0),
        "n_group": (None, 1),
        "scoring_func": (None, "softmax"),
        "routed_scaling_factor": (None, 1),
        "final_logit_softcapping": (None,),
        "attn_logit_softcapping": (None,),
    }
)
"""Keys that ask for other arithmetic than this family's, with the values at which they do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSizes:
    """The experts of every layer."""

    count: int
    chosen: int
    width: int
    shared_width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QwenConfig:
    """What the decoder is built from."""

    vocabulary: int
    hidden: int
    width: int
    """Of the feed-forward block; 0 with experts."""
    mixture: MixtureSizes | None
    kinds: tuple[LayerKind, ...]
    """Of each layer's mixer."""
    heads: int
    kv_heads: int
    head_dim: int
    attention_bias: bool
    delta: DeltaSizes
    eps: float
    act: Activation
    rope: Rope
    window: int
    tied: bool
    """The output head is the embedding."""
    draft: bool
    """The config tells of a draft head of one attention layer."""


def qwen_config(config: ModelConfig, variant: Variant) -> QwenConfig:
    """The config of a checkpoint of this variant, with or without a vision tower.

    Raises:
        CheckpointUnsupported: naming the key that is missing, impossible, or asks for what is not run.
    """
    text = _with_window(text_config(config))
    for key, allowed in _NOT_RUN.items():
        text.require(key, *allowed)
    refuse_foreign(text, own=_NOT_RUN)
    if not variant.mixture:
        text.require("num_experts", None, 0)
    heads = text.positive("num_attention_heads")
    head_dim = text.positive("head_dim", 256)
    return QwenConfig(
        vocabulary=text.positive("vocab_size"),
        hidden=text.positive("hidden_size"),
        width=0 if variant.mixture else text.positive("intermediate_size"),
        mixture=_mixture(text) if variant.mixture else None,
        kinds=_kinds(text),
        heads=heads,
        kv_heads=_divisor(text, "num_key_value_heads", variant.kv_heads, "num_attention_heads", heads),
        head_dim=head_dim,
        attention_bias=text.get(bool, "attention_bias", False),
        delta=_delta(text),
        eps=text.get(float, "rms_norm_eps", 1e-6),
        act="silu",
        rope=_rope(text, head_dim),
        window=context_window(text),
        tied=is_tied(config, default=False),
        draft=text.get(int, "mtp_num_hidden_layers", 0) == 1,
    )


def _with_window(text: ModelConfig) -> ModelConfig:
    if text.get(int, "max_position_embeddings", None) is not None:
        return text
    return ModelConfig({**text.values, "max_position_embeddings": 32768}, text.generation, text.where, text.path)


def _divisor(text: ModelConfig, key: str, default: int, whole_key: str, whole: int) -> int:
    value = text.positive(key, default)
    if whole % value:
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}{whole_key} is {whole}, and must be a multiple of {key} {value}"
        )
    return value


def _delta(text: ModelConfig) -> DeltaSizes:
    values = text.positive("linear_num_value_heads", 32)
    return DeltaSizes(
        key_heads=_divisor(text, "linear_num_key_heads", 16, "linear_num_value_heads", values),
        value_heads=values,
        key_dim=text.positive("linear_key_head_dim", 128),
        value_dim=text.positive("linear_value_head_dim", 128),
        taps=text.positive("linear_conv_kernel_dim", 4),
    )


def _mixture(text: ModelConfig) -> MixtureSizes:
    count, chosen = text.positive("num_experts", 256), text.positive("num_experts_per_tok", 8)
    if chosen > count:
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}num_experts_per_tok is {chosen}, and there are {count} experts"
        )
    if text.values.get("mlp_only_layers") not in (None, []):
        raise CheckpointUnsupported(f"{text.where}: {text.path}mlp_only_layers names layers, and all have experts here")
    return MixtureSizes(
        count=count,
        chosen=chosen,
        width=text.positive("moe_intermediate_size", 512),
        shared_width=text.positive("shared_expert_intermediate_size", 512),
    )


def _kinds(text: ModelConfig) -> tuple[LayerKind, ...]:
    layers = text.layers()
    value: Any = text.values.get("layer_types")
    if value is None:
        interval = text.positive("full_attention_interval", 4)
        return tuple("linear_attention" if (layer + 1) % interval else "full_attention" for layer in range(layers))
    kinds = tuple(cast("list[Any]", value)) if isinstance(value, list) else ()
    if len(kinds) != layers or not all(kind in _KINDS for kind in kinds):
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}layer_types must name {' or '.join(_KINDS)} for each of {layers} layers"
        )
    return cast("tuple[LayerKind, ...]", kinds)


def _rope(text: ModelConfig, head_dim: int) -> Rope:
    section = text.section("rope_parameters") or text.section("rope_scaling")
    values = dict(text.values)
    if (section is None or section.values.get("partial_rotary_factor") is None) and (
        values.get("partial_rotary_factor") is None
    ):
        values["partial_rotary_factor"] = 0.25
    rope = rope_of(ModelConfig(values, text.generation, text.where, text.path), head_dim)
    if section is not None:
        _check_sections(section, len(rope.inv_freq))
    return rope


def _check_sections(section: ModelConfig, pairs: int) -> None:
    """M-RoPE gives each pair one of three positions. A text's three are equal, so who gets which changes nothing."""
    value: Any = section.values.get("mrope_section")
    if value is None:
        return
    parts = cast("list[Any]", value) if isinstance(value, list) else []
    if len(parts) != 3 or not all(type(part) is int and part >= 0 for part in parts) or sum(parts) != pairs:
        raise CheckpointUnsupported(
            f"{section.where}: {section.path}mrope_section is {value!r}, and must share out {pairs} pairs to three axes"
        )

"""A Llama-shaped config, read and checked; what this family does not run is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, cast

from tensorfold.compute.foreign import refuse_foreign
from tensorfold.compute.layers.rope import context_window, rope_of
from tensorfold.contracts.handles import Activation, Rope
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported

__all__ = ["VARIANTS", "LlamaConfig", "Variant", "llama_config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Where the four model types differ. Defaults are those of their transformers config classes."""

    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    qk_norm: bool = False
    """Query and key heads are normalized."""
    own_biases: bool = True
    """`attention_bias` and `mlp_bias` say what has a bias; else query, key and value have one and nothing else."""
    kv_heads: int | None = None
    """When the config does not say; None: as many as query heads."""
    head_dim: int | None = None
    """When the config does not say; None: hidden / heads."""
    window: int
    """`max_position_embeddings` when the config does not say."""

    @property
    def name(self) -> str:
        """The model type."""
        return self.model_types[0]


VARIANTS: Final[tuple[Variant, ...]] = (
    Variant(model_types=("llama",), architectures=("LlamaForCausalLM",), window=2048),
    Variant(model_types=("mistral",), architectures=("MistralForCausalLM",), kv_heads=8, window=131072),
    Variant(model_types=("qwen2",), architectures=("Qwen2ForCausalLM",), own_biases=False, window=32768),
    Variant(model_types=("qwen3",), architectures=("Qwen3ForCausalLM",), qk_norm=True, head_dim=128, window=32768),
)

_ACTIVATIONS: Final[Mapping[str, Activation]] = MappingProxyType(
    {
        "silu": "silu",
        "swish": "silu",
        "gelu_pytorch_tanh": "gelu",
        "gelu_new": "gelu",
        "gelu_fast": "gelu",
        "gelu_accurate": "gelu",
        "gelu_python_tanh": "gelu",
        "relu2": "relu2",
    }
)
"""`hidden_act` to the operation; `gelu` itself is the erf form, which no backend has."""

_NOT_RUN: Final[Mapping[str, tuple[str | bool | int | None, ...]]] = MappingProxyType(
    {
        "num_local_experts": (None, 0),
        "num_experts": (None, 0),
        "n_routed_experts": (None, 0),
        "moe_intermediate_size": (None,),
        "num_nextn_predict_layers": (None, 0),
        "kv_lora_rank": (None,),
        "attention_chunk_size": (None,),
        "no_rope_layers": (None,),
        "no_rope_layer_interval": (None, 0),
        "partial_rotary_factor": (None, 1),
        "rope_interleave": (None, False),
        "attn_logit_softcapping": (None,),
        "final_logit_softcapping": (None,),
        "query_pre_attn_scalar": (None,),
        "attention_multiplier": (None,),
        "embedding_multiplier": (None, 1),
        "residual_multiplier": (None, 1),
        "logits_scaling": (None, 1),
        "logit_scale": (None, 1),
        "scale_emb": (None, 1),
        "scale_depth": (None,),
        "dim_model_base": (None,),
        "clip_qkv": (None,),
        "use_qk_norm": (None, False),
        "qk_layernorm": (None, False),
        "alibi": (None, False),
        "is_encoder_decoder": (None, False),
        "add_cross_attention": (None, False),
    }
)
"""Keys of models that look like these and compute otherwise, with the values at which they change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """What the decoder is built from."""

    variant: Variant
    vocabulary: int
    hidden: int
    width: int
    """Of the feed-forward block."""
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    act: Activation
    rope: Rope
    window: int
    """The longest sequence."""
    windows: tuple[int | None, ...]
    """How far each layer's attention sees; None: to the start."""
    qkv_bias: bool | None
    """None: as the checkpoint has it (GGUF does not say)."""
    out_bias: bool | None
    mlp_bias: bool | None
    tied: bool
    """The output head is the embedding."""


def llama_config(config: ModelConfig, variant: Variant) -> LlamaConfig:
    """The config of a checkpoint of this variant.

    Raises:
        CheckpointUnsupported: naming the key that is missing, impossible, or asks for what is not run.
    """
    for key, allowed in _NOT_RUN.items():
        config.require(key, *allowed)
    refuse_foreign(config, own=(*_NOT_RUN, "use_sliding_window"))
    hidden, heads = config.positive("hidden_size"), config.positive("num_attention_heads")
    kv_heads = config.positive("num_key_value_heads", variant.kv_heads or heads)
    if heads % kv_heads:
        raise CheckpointUnsupported(
            f"{config.where}: num_attention_heads is {heads}, and must be a multiple of num_key_value_heads {kv_heads}"
        )
    head_dim = _head_dim(config, variant, hidden, heads)
    layers = config.layers()
    config = _with_window(config, variant)
    window = context_window(config)
    own = variant.own_biases
    return LlamaConfig(
        variant=variant,
        vocabulary=config.positive("vocab_size"),
        hidden=hidden,
        width=config.positive("intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        eps=config.get(float, "rms_norm_eps", 1e-6),
        act=_activation(config),
        rope=_rope(config, head_dim),
        window=window,
        windows=tuple(
            None if each is None or each >= window else each for each in _layer_windows(config, variant, layers)
        ),
        qkv_bias=config.get(bool, "attention_bias", None) if own else True,
        out_bias=config.get(bool, "attention_bias", None) if own else False,
        mlp_bias=config.get(bool, "mlp_bias", None) if own else False,
        tied=config.get(bool, "tie_word_embeddings", False),
    )


def _with_window(config: ModelConfig, variant: Variant) -> ModelConfig:
    if config.get(int, "max_position_embeddings", None) is not None:
        return config
    values = {**config.values, "max_position_embeddings": variant.window}
    return ModelConfig(values, config.generation, config.where, config.path)


def _head_dim(config: ModelConfig, variant: Variant, hidden: int, heads: int) -> int:
    given = config.get(int, "head_dim", variant.head_dim)
    if given is None and hidden % heads:
        raise CheckpointUnsupported(
            f"{config.where}: hidden_size is {hidden}, and must be a multiple of num_attention_heads {heads},"
            " since there is no head_dim"
        )
    head_dim = hidden // heads if given is None else given
    if head_dim < 2 or head_dim % 2:
        raise CheckpointUnsupported(f"{config.where}: head_dim is {head_dim}, and must be even to be rotated in pairs")
    return head_dim


def _activation(config: ModelConfig) -> Activation:
    name = config.get(str, "hidden_act", "silu")
    if name not in _ACTIVATIONS:
        raise CheckpointUnsupported(
            f"{config.where}: hidden_act is {name!r}, and only {', '.join(_ACTIVATIONS)} are run"
        )
    return _ACTIVATIONS[name]


def _rope(config: ModelConfig, head_dim: int) -> Rope:
    for key in ("rope_scaling", "rope_parameters"):
        section = config.section(key)
        if section is not None:
            section.require("partial_rotary_factor", None, 1)
            section.require("mrope_section", None)
            section.require("llama_4_scaling_beta", None)
            for layer_type in ("full_attention", "sliding_attention"):
                section.require(layer_type, None)
    return rope_of(config, head_dim)


def _layer_windows(config: ModelConfig, variant: Variant, layers: int) -> tuple[int | None, ...]:
    window, first = _window(config, variant)
    implied = tuple(window if layer >= first else None for layer in range(layers))
    types = _layer_types(config, layers)
    if types is None:
        return implied
    if window is not None and variant.name in ("qwen2", "qwen3"):
        return tuple(window if each == "sliding_attention" else None for each in types)
    if any((each == "sliding_attention") != (seen is not None) for each, seen in zip(types, implied, strict=True)):
        raise CheckpointUnsupported(
            f"{config.where}: layer_types names layers that see a window only, and the other keys of a"
            f" {variant.name} model (sliding_window, use_sliding_window) say otherwise"
        )
    return implied


def _window(config: ModelConfig, variant: Variant) -> tuple[int | None, int]:
    """The window, and the first layer that has it."""
    match variant.name:
        case "mistral":
            # transformers takes 4096 unless the config says null.
            says_null = "sliding_window" in config.values and config.values["sliding_window"] is None
            return (None if says_null else config.positive("sliding_window", 4096)), 0
        case "qwen2" | "qwen3" if config.get(bool, "use_sliding_window", False):
            return config.positive("sliding_window", 4096), config.get(int, "max_window_layers", 28)
        case _:
            return None, 0


def _layer_types(config: ModelConfig, layers: int) -> tuple[str, ...] | None:
    value: Any = config.values.get("layer_types")
    if value is None:
        return None
    types = tuple(cast("list[Any]", value)) if isinstance(value, list) else ()
    if len(types) != layers or not all(type in ("full_attention", "sliding_attention") for type in types):
        raise CheckpointUnsupported(
            f"{config.where}: layer_types must name full_attention or sliding_attention for each of {layers} layers"
        )
    return cast("tuple[str, ...]", types)

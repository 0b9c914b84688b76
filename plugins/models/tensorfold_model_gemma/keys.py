"""What both generations say in the same keys."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, cast

from tensorfold.compute.layers.rope import rope_of
from tensorfold.contracts.handles import Activation, Rope
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported

__all__ = [
    "FULL",
    "SLIDING",
    "LayerType",
    "activation",
    "check_heads",
    "layer_types",
    "layer_window",
    "logit_softcap",
    "rope_rule",
]

LayerType: TypeAlias = Literal["sliding_attention", "full_attention"]

SLIDING: Final[LayerType] = "sliding_attention"
FULL: Final[LayerType] = "full_attention"

_ACTIVATIONS: Final[Mapping[str, Activation]] = MappingProxyType(
    {"gelu_pytorch_tanh": "gelu", "gelu_new": "gelu", "silu": "silu", "swish": "silu", "relu2": "relu2"}
)
"""`hidden_activation` to the operation; `gelu` itself is the erf form, which no backend has."""


def activation(text: ModelConfig) -> Activation:
    """Of the feed-forwards."""
    name = text.get(str, "hidden_activation", "gelu_pytorch_tanh")
    if name not in _ACTIVATIONS:
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}hidden_activation is {name!r}, and only {', '.join(_ACTIVATIONS)} are run"
        )
    return _ACTIVATIONS[name]


def logit_softcap(text: ModelConfig) -> float | None:
    """The bound of the logits; None: they have none."""
    cap = text.get(float, "final_logit_softcapping", None)
    if cap is not None and not cap > 0:
        raise CheckpointUnsupported(f"{text.where}: {text.path}final_logit_softcapping is {cap}, and must be above 0")
    return cap


def layer_types(text: ModelConfig, layers: int) -> tuple[LayerType, ...] | None:
    """Whose attention sees a window only; None: the config does not list it."""
    value: Any = text.values.get("layer_types")
    if value is None:
        return None
    types = tuple(cast("list[Any]", value)) if isinstance(value, list) else ()
    if len(types) != layers or not all(type in (SLIDING, FULL) for type in types):
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}layer_types must name {SLIDING} or {FULL} for each of {layers} layers"
        )
    return cast("tuple[LayerType, ...]", types)


def layer_window(text: ModelConfig, type: LayerType, default: int, longest: int) -> int | None:
    """How far a layer of this type sees; a window as long as the context is none."""
    window = text.positive("sliding_window", default)
    return window if type == SLIDING and window < longest else None


def check_heads(text: ModelConfig, heads: int, kv_heads: int, head_dim: int) -> None:
    """Whether query heads share key heads evenly, and a head can be rotated in pairs."""
    if heads % kv_heads:
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}num_attention_heads is {heads}, and must be a multiple of num_key_value_heads"
            f" {kv_heads}"
        )
    if head_dim % 2:
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}head_dim is {head_dim}, and must be even to be rotated in pairs"
        )


def rope_rule(text: ModelConfig, type: LayerType, rule: Mapping[str, Any], head_dim: int, longest: int) -> Rope:
    """The rotation that one entry of `rope_parameters` asks for."""
    values = {"max_position_embeddings": longest, "rope_parameters": {type: dict(rule)}}
    config = ModelConfig(values, text.generation, text.where, text.path)
    if rule.get("rope_type") != "proportional":
        ModelConfig(rule, {}, text.where, f"{text.path}rope_parameters.{type}.").require(
            "partial_rotary_factor", None, 1
        )
    return rope_of(config, head_dim, layer_type=type)

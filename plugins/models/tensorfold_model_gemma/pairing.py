"""The config of a `gemma4_assistant`, a drafter in a checkpoint of its own, and whether it drafts for a Gemma 4."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from tensorfold.compute.nested import text_config
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_gemma.gemma4 import gemma4_config
from tensorfold_model_gemma.shape import GemmaConfig, LayerShape

__all__ = [
    "ARCHITECTURE",
    "MODEL_TYPE",
    "AssistantConfig",
    "Centroids",
    "alone_config",
    "is_assistant",
    "paired_config",
    "refuse_alone",
]

MODEL_TYPE: Final = "gemma4_assistant"
ARCHITECTURE: Final = "Gemma4AssistantForCausalLM"

_WITHOUT: Final[Mapping[str, tuple[bool | int | None, ...]]] = MappingProxyType(
    {
        "hidden_size_per_layer_input": (0,),
        "vocab_size_per_layer_input": (None, 0),
        "enable_moe_block": (None, False),
        "use_double_wide_mlp": (None, False),
    }
)
"""What Gemma 4 may have and its drafters have not."""


@dataclass(frozen=True, slots=True)
class Centroids:
    """A vocabulary in clusters of one size, of which only the likeliest are guessed from."""

    count: int
    chosen: int


@dataclass(frozen=True, slots=True)
class AssistantConfig:
    """A drafter."""

    body: GemmaConfig
    """Its layers; of one for a target, the `source` of each is the target's layer whose keys and values it reads."""
    target: int
    """Width of the target's rows."""
    sliding: int
    """Positions that its sliding layers see, and the target's must."""
    centroids: Centroids | None


def is_assistant(config: ModelConfig) -> bool:
    """By model type, or by architecture where there is none."""
    return config.model_type == MODEL_TYPE or (not config.model_type and ARCHITECTURE in config.architectures)


def refuse_alone(config: ModelConfig) -> None:
    """A drafter is no model to be served.

    Raises:
        CheckpointUnsupported: the config is a drafter's.
    """
    if is_assistant(config):
        raise CheckpointUnsupported(
            f"{config.where}: model_type is {MODEL_TYPE!r}, a drafter that reads the states of a Gemma 4: serve that"
            " model, and give this checkpoint as --draft-model"
        )


def alone_config(drafter: ModelConfig) -> AssistantConfig:
    """The drafter's config, for whatever target.

    Raises:
        CheckpointUnsupported: naming the key that asks for what is not run.
    """
    own = text_config(drafter)
    for key, allowed in _WITHOUT.items():
        own.require(key, *allowed)
    own.require("num_kv_shared_layers", None, 0, own.layers())
    body = gemma4_config(_with_keys_of_its_own(drafter))
    return AssistantConfig(
        body=body,
        target=drafter.positive("backbone_hidden_size", 1536),
        sliding=_sliding(drafter),
        centroids=_centroids(drafter, body.vocabulary),
    )


def paired_config(target: ModelConfig, drafter: ModelConfig) -> AssistantConfig:
    """The drafter's config, for the Gemma 4 of the first config.

    Raises:
        CheckpointUnsupported: naming the key by which the two do not fit, or that asks for what is not run.
    """
    if not is_assistant(drafter):
        raise CheckpointUnsupported(
            f"{drafter.where}: model_type is {drafter.model_type!r}, and what drafts for a Gemma 4 is {MODEL_TYPE!r}"
        )
    alone, own, read = alone_config(drafter), text_config(drafter), gemma4_config(target)
    _require(drafter, "backbone_hidden_size", alone.target, read.hidden)
    _require(own, "vocab_size", alone.body.vocabulary, read.vocabulary)
    _require(own, "sliding_window", alone.sliding, _sliding(target))
    layers = tuple(_reading(own, shape, read) for shape in alone.body.layers)
    return replace(alone, body=replace(alone.body, layers=layers))


def _with_keys_of_its_own(drafter: ModelConfig) -> ModelConfig:
    """The config as that of a model: in Gemma 4's own reading some layer has to have keys."""
    values: dict[str, Any] = dict(text_config(drafter).values)
    values["num_kv_shared_layers"] = 0
    return replace(drafter, values={**drafter.values, "text_config": values})


def _sliding(config: ModelConfig) -> int:
    return text_config(config).positive("sliding_window", 512)


def _reading(own: ModelConfig, shape: LayerShape, target: GemmaConfig) -> LayerShape:
    """The layer over the keys and values of the target's last layer of its type that has any."""
    sources = [number for number, each in enumerate(target.layers) if each.type == shape.type and each.source == number]
    if not sources:
        raise CheckpointUnsupported(
            f"{own.where}: {own.path}layer_types has {shape.type}, and the target has no such layer"
        )
    read = target.layers[sources[-1]]
    kind = f"of a {shape.type} layer"
    _require(own, f"head_dim {kind}", shape.head_dim, read.head_dim)
    _require(own, f"num_key_value_heads {kind}", shape.kv_heads, read.kv_heads)
    if shape.rope != read.rope:
        raise CheckpointUnsupported(
            f"{own.where}: {own.path}rope_parameters of {shape.type} differ from those that the target's keys are"
            " rotated by"
        )
    return replace(shape, source=sources[-1])


def _require(config: ModelConfig, what: str, value: int, wanted: int) -> None:
    if value != wanted:
        raise CheckpointUnsupported(f"{config.where}: {config.path}{what} is {value}, and the target's is {wanted}")


def _centroids(drafter: ModelConfig, vocabulary: int) -> Centroids | None:
    if not drafter.get(bool, "use_ordered_embeddings", False):
        return None
    count = drafter.positive("num_centroids", 2048)
    chosen = drafter.positive("centroid_intermediate_top_k", 32)
    if vocabulary % count or chosen > count:
        raise CheckpointUnsupported(
            f"{drafter.where}: num_centroids is {count}, and must divide the {vocabulary} tokens and be at least"
            f" centroid_intermediate_top_k {chosen}"
        )
    return Centroids(count, chosen)

"""Which kind each layer is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported

__all__ = ["Layer", "Mixer", "flash_layers", "glm_layers"]


class Mixer(Enum):
    """What mixes the rows of a sequence."""

    INDEXED = "indexed"
    """Latent attention with an indexer of its own."""
    FOLLOWING = "following"
    """Latent attention over what the last indexer has chosen."""
    LINEAR = "linear"
    """Kimi delta attention."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer."""

    mixer: Mixer
    sparse: bool
    """Its feed-forward block is a mixture of experts."""


_ATTENTION: Final = frozenset({"indexed_attention", "deepseek_sparse_attention", "full_attention"})
"""Names in `layer_types` for latent attention with an indexer."""


def glm_layers(config: ModelConfig) -> tuple[Layer, ...]:
    """GLM-5.3: attention everywhere, with an indexer of its own or the last one's choice."""
    count = config.layers()
    _names(config, "layer_types", count, _ATTENTION)  # names the one kind there is, or is refused
    indexers = _indexers(config, count)
    if indexers[0] != "full":
        raise CheckpointUnsupported(
            f"{config.where}: {config.path}indexer_types begins with {indexers[0]!r}, and the first layer must choose"
        )
    mixers = [Mixer.INDEXED if each == "full" else Mixer.FOLLOWING for each in indexers]
    return tuple(Layer(mixer, sparse) for mixer, sparse in zip(mixers, _sparse(config, count), strict=True))


def flash_layers(config: ModelConfig) -> tuple[Layer, ...]:
    """GLM-5.3-Flash: three linear layers, then one of attention with an indexer of its own."""
    count = config.layers()
    types = _names(config, "layer_types", count, _ATTENTION | {"linear_attention"}) or [
        "full_attention" if layer % 4 == 3 else "linear_attention" for layer in range(count)
    ]
    for layer, (kind, indexer) in enumerate(zip(types, _indexers(config, count), strict=True)):
        if kind in _ATTENTION and indexer != "full":
            raise CheckpointUnsupported(
                f"{config.where}: {config.path}indexer_types is {indexer!r} for layer {layer}, and only 'full' is run"
            )
    mixers = [Mixer.INDEXED if kind in _ATTENTION else Mixer.LINEAR for kind in types]
    return tuple(Layer(mixer, sparse) for mixer, sparse in zip(mixers, _sparse(config, count), strict=True))


def _sparse(config: ModelConfig, count: int) -> list[bool]:
    """`mlp_layer_types`, or a number of dense layers before sparse ones."""
    config.require("moe_layer_freq", None, 1)
    names = _names(config, "mlp_layer_types", count, frozenset({"dense", "sparse"}))
    if names is not None:
        return [name == "sparse" for name in names]
    dense = config.get(int, "first_k_dense_replace", 3)
    return [layer >= dense for layer in range(count)]


def _indexers(config: ModelConfig, count: int) -> list[str]:
    """`indexer_types`; or `index_topk_pattern`, a letter a layer; or every so many layers behind the first ones."""
    names = _names(config, "indexer_types", count, frozenset({"full", "shared"}))
    if names is not None:
        return names
    pattern: Any = config.values.get("index_topk_pattern")
    if isinstance(pattern, str):
        letters = {"F": "full", "S": "shared"}
        named = [letters.get(letter, letter) for letter in pattern]
        config = ModelConfig({"index_topk_pattern": named}, config.generation, config.where, config.path)
    names = _names(config, "index_topk_pattern", count, frozenset({"full", "shared"}))
    if names is not None:
        return names
    every = max(config.get(int, "index_topk_freq", 1), 1)
    offset = config.get(int, "index_skip_topk_offset", 2)
    return ["full" if max(layer - offset + 1, 0) % every == 0 else "shared" for layer in range(count)]


def _names(config: ModelConfig, key: str, count: int, known: frozenset[str]) -> list[str] | None:
    """A list of one known name a layer, or None when the key is missing. It may go on to the draft head's layer."""
    value: Any = config.values.get(key)
    if value is None:
        return None
    names = cast("list[Any]", value) if isinstance(value, list) else []
    further = config.get(int, "num_nextn_predict_layers", 0)
    if len(names) not in (count, count + further) or not all(isinstance(each, str) and each in known for each in names):
        raise CheckpointUnsupported(
            f"{config.where}: {config.path}{key} must name {' or '.join(sorted(known))} for each of {count} layers"
        )
    return cast("list[str]", names[:count])

"""Which block each layer has: spelled as a list (in the names of two generations of transformers) or as a pattern."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, cast

from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported

__all__ = ["BlockKind", "draft_pattern", "layer_pattern"]

BlockKind: TypeAlias = Literal["mamba", "attention", "moe", "mlp"]

_NAMES: Final[Mapping[str, BlockKind]] = MappingProxyType(
    {
        "mamba": "mamba",
        "linear_attention": "mamba",
        "attention": "attention",
        "full_attention": "attention",
        "moe": "moe",
        "mlp": "mlp",
    }
)
"""Entries of a list."""

_LETTERS: Final[Mapping[str, BlockKind]] = MappingProxyType({"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"})
"""Letters of a pattern."""


def layer_pattern(config: ModelConfig) -> tuple[BlockKind, ...]:
    """The block of every layer."""
    kinds = (
        _listed(config, "layers_block_type")
        or _listed(config, "layer_types")
        or _spelled(config, "hybrid_override_pattern")
    )
    if not kinds:
        raise CheckpointUnsupported(f"{config.where} has neither layers_block_type nor hybrid_override_pattern")
    config.require("num_hidden_layers", None, len(kinds))
    return kinds


def draft_pattern(config: ModelConfig) -> tuple[BlockKind, ...]:
    """The block of every layer of the draft head."""
    return (
        _listed(config, "mtp_layers_block_type")
        or _spelled(config, "mtp_hybrid_override_pattern")
        or ("attention", "moe")
    )


def _listed(config: ModelConfig, key: str) -> tuple[BlockKind, ...]:
    value: Any = config.values.get(key)
    if value is None:
        return ()
    names = cast("list[Any]", value) if isinstance(value, list) else []
    if not names or not all(isinstance(name, str) and name in _NAMES for name in names):
        raise CheckpointUnsupported(f"{config.where}: {key} must be a list of {', '.join(_NAMES)}")
    return tuple(_NAMES[name] for name in names)


def _spelled(config: ModelConfig, key: str) -> tuple[BlockKind, ...]:
    pattern = config.get(str, key, "")
    if not set(pattern) <= _LETTERS.keys():
        raise CheckpointUnsupported(f"{config.where}: {key} is {pattern!r}, and only {' '.join(_LETTERS)} are run")
    return tuple(_LETTERS[letter] for letter in pattern)

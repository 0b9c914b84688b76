"""A Gemma config, read and checked; what this family does not run is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tensorfold.contracts.model_config import ModelConfig
from tensorfold_model_gemma.gemma3 import gemma3_config
from tensorfold_model_gemma.gemma4 import gemma4_config
from tensorfold_model_gemma.shape import GemmaConfig

__all__ = ["VARIANTS", "Variant", "gemma_config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One generation."""

    model_types: tuple[str, ...]
    """Of a checkpoint with towers, and of a text model alone."""
    architectures: tuple[str, ...]
    read: Callable[[ModelConfig], GemmaConfig]
    capabilities: frozenset[str]


VARIANTS: Final[tuple[Variant, ...]] = (
    Variant(
        model_types=("gemma3", "gemma3_text"),
        architectures=("Gemma3ForConditionalGeneration", "Gemma3ForCausalLM"),
        read=gemma3_config,
        capabilities=frozenset(),
    ),
    Variant(
        model_types=("gemma4", "gemma4_text"),
        architectures=("Gemma4ForConditionalGeneration", "Gemma4ForCausalLM"),
        read=gemma4_config,
        capabilities=frozenset({"tools", "thinking"}),
    ),
)


def gemma_config(config: ModelConfig, variant: Variant) -> GemmaConfig:
    """The config of a checkpoint of this variant.

    Raises:
        CheckpointUnsupported: naming the key that is missing, impossible, or asks for what is not run.
    """
    return variant.read(config)

"""What a Gemma decoder is built from, whichever generation's config said it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tensorfold.contracts.handles import Activation, Rope
from tensorfold_model_gemma.keys import LayerType

__all__ = ["GemmaConfig", "Generation", "LayerShape", "MixtureSizes", "PerLayerSizes"]

Generation: TypeAlias = Literal[3, 4]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """One layer."""

    type: LayerType
    kv_heads: int
    head_dim: int
    window: int | None
    """How far its attention sees; None: to the start."""
    rope: Rope
    width: int
    """Of the feed-forward block."""
    source: int
    """The layer whose keys and values it reads: its own number, or an earlier one of its kind."""
    has_values: bool = True
    """It projects values; else the projected keys are values too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSizes:
    """The experts that every layer has beside its feed-forward."""

    count: int
    chosen: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PerLayerSizes:
    """The per-layer embeddings of the E-models."""

    vocabulary: int
    width: int
    """Of what one layer gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmaConfig:
    """A decoder."""

    generation: Generation
    vocabulary: int
    hidden: int
    heads: int
    """Query heads of every layer."""
    layers: tuple[LayerShape, ...]
    scale: float
    """Of attention scores."""
    attention_bias: bool
    act: Activation
    eps: float
    softcap: float | None
    """Bounds the logits."""
    window: int
    """The longest sequence."""
    tied: bool
    """The output head is the embedding."""
    mixture: MixtureSizes | None = None
    per_layer: PerLayerSizes | None = None

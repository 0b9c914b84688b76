"""What a Gemma decoder is built from, whichever generation's config said it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tensorfold.contracts.handles import Activation, Rope

__all__ = ["GemmaConfig", "Generation", "LayerShape", "MixtureSizes", "PerLayerSizes"]

Generation: TypeAlias = Literal[3, 4]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """One layer."""

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

    @property
    def parameters(self) -> int:
        """Number of weights, a tied head counted once."""
        tables = self.vocabulary * self.hidden * (1 if self.tied else 2)
        layers = sum(self._layer(number, shape) for number, shape in enumerate(self.layers))
        return tables + layers + self.hidden + self._per_layer_tables()

    def _layer(self, number: int, shape: LayerShape) -> int:
        norms_and_scale = 4 * self.hidden + (self.generation == 4)
        feed_forward = 3 * self.hidden * shape.width
        return (
            self._attention(number, shape) + feed_forward + norms_and_scale + self._experts() + self._per_layer_gate()
        )

    def _attention(self, number: int, shape: LayerShape) -> int:
        queries, keys = self.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        own = (1 + shape.has_values) * keys if shape.source == number else 0
        norms = shape.head_dim * (1 + (shape.source == number))
        return self.hidden * (2 * queries + own) + (queries + own + self.hidden) * self.attention_bias + norms

    def _experts(self) -> int:
        if self.mixture is None:
            return 0
        sizes = self.mixture
        # Router projection, its norm and the scale of each expert; the experts; three norms around them.
        router = sizes.count * self.hidden + self.hidden + sizes.count
        return router + sizes.count * 3 * self.hidden * sizes.width + 3 * self.hidden

    def _per_layer_gate(self) -> int:
        return 0 if self.per_layer is None else 2 * self.hidden * self.per_layer.width + self.hidden

    def _per_layer_tables(self) -> int:
        if self.per_layer is None:
            return 0
        sizes = self.per_layer
        return (sizes.vocabulary + self.hidden) * len(self.layers) * sizes.width + sizes.width

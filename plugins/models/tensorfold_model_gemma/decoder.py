"""The decoder: scaled embeddings, sandwich layers, bounded logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic

from numpy.typing import NDArray

from tensorfold.compute.layers import RmsNorm
from tensorfold.compute.nested import text_names
from tensorfold.contracts.arrays import A
from tensorfold.contracts.family import Decoder
from tensorfold.contracts.handles import Embedding, Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import KV, StateSpec
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights
from tensorfold_model_gemma.layers import GemmaLayer, LayerBuilder, state_of
from tensorfold_model_gemma.per_layer import PerLayerInputs, per_layer_inputs
from tensorfold_model_gemma.shape import GemmaConfig

__all__ = ["GemmaDecoder", "build", "states"]

_TOWERS: Final = ("vision_tower", "audio_tower", "embed_vision", "embed_audio", "multi_modal_projector")
"""Modules beside the text model, which are left."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GemmaDecoder(Generic[A]):
    """A decoder. Its checkpoints have no draft head; a drafter may have been paired with it."""

    embedding: Embedding
    scale: float
    """Multiplies the embeddings."""
    inputs: PerLayerInputs[A] | None
    layers: tuple[GemmaLayer[A], ...]
    norm: RmsNorm[A]
    head: Linear
    softcap: float | None
    """Bounds the logits."""
    draft: Decoder[A] | None = None

    def prepare(self, step: Step[A]) -> Mapping[str, NDArray[Any]]:
        """Nothing is computed on the host."""
        return {}

    def forward(self, ops: Ops[A], step: Step[A]) -> A:
        """The rows after the last norm."""
        x = self.embed(ops, step.ids)
        inputs = None if self.inputs is None else self.inputs(ops, step.ids, x)
        for number, layer in enumerate(self.layers):
            x = layer.body(ops, step, x)
            if inputs is not None and layer.gate is not None:
                x = layer.gate(ops, x, inputs[:, number])
            if layer.scale != 1.0:
                x = x * layer.scale
        return self.norm(ops, x)

    def embed(self, ops: Ops[A], ids: A) -> A:
        """`[R]` ids to `[R, H]`."""
        rows: A = ops.embed(ids, self.embedding) * self.scale
        return rows

    def logits(self, ops: Ops[A], hidden: A) -> A:
        """`[N, H]` to `[N, V]`."""
        logits = ops.linear(hidden, self.head)
        return logits if self.softcap is None else ops.softcap(logits, self.softcap)


def states(config: GemmaConfig) -> dict[str, StateSpec]:
    """Keys and values of every layer that has its own."""
    return {
        state_of(number): KV(shape.kv_heads, shape.head_dim, shape.head_dim, shape.window)
        for number, shape in enumerate(config.layers)
        if shape.source == number
    }


def build(config: GemmaConfig, weights: Weights[A]) -> GemmaDecoder[A]:
    """The decoder over these weights. Towers of other senses are left."""
    weights.ignore(*(f"{root}{tower}.*" for tower in _TOWERS for root in ("", "model.")), "*.rotary_emb.inv_freq")
    names = text_names(weights, "embed_tokens.weight")
    layers = LayerBuilder(config, weights)
    table = (config.vocabulary, config.hidden)
    embedding = weights.embedding(f"{names.root}.embed_tokens", shape=table)
    return GemmaDecoder(
        embedding=embedding,
        scale=config.hidden**0.5,
        inputs=None if config.per_layer is None else per_layer_inputs(config, weights, names.root, config.per_layer),
        layers=tuple(layers.layer(f"{names.root}.layers.{number}", number) for number in range(len(config.layers))),
        norm=layers.norm(f"{names.root}.norm"),
        head=weights.head(names.head, embedding if config.tied else None, shape=table),
        softcap=config.softcap,
    )

"""The decoder: residual streams from embedding to output head. Its rows are the streams, which the draft head wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic

from numpy.typing import NDArray

from tensorfold.compute.layers.hyper_connections import GatedMixture, spread
from tensorfold.compute.layers.ngrams import NgramHash, ngram_hash, ngram_states
from tensorfold.compute.nested import text_names
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Embedding, Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import StateSpec
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights
from tensorfold_model_flash_next.config import FlashNextConfig
from tensorfold_model_flash_next.draft import DRAFT_STATE, FlashNextDraftHead, draft_head
from tensorfold_model_flash_next.layer import LayerBuilder, StreamLayer, layer_states

__all__ = ["FlashNextDecoder", "build", "states"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FlashNextDecoder(Generic[A]):
    """A decoder with the checkpoint's draft head, if it has one."""

    streams: int
    embedding: Embedding
    hashes: Mapping[str, NgramHash]
    """By the name that a layer looks for among a Step's inputs."""
    layers: tuple[StreamLayer[A], ...]
    mixture: GatedMixture[A]
    head: Linear
    draft: FlashNextDraftHead[A] | None

    def prepare(self, step: Step[A]) -> Mapping[str, NDArray[Any]]:
        """The rows of the n-gram tables."""
        return {name: hashed(step) for name, hashed in self.hashes.items()}

    def forward(self, ops: Ops[A], step: Step[A]) -> A:
        """`[R, n H]`, the streams after the last layer."""
        streams = spread(ops, ops.embed(step.ids, self.embedding), self.streams)
        for layer in self.layers:
            streams = layer(ops, step, streams)
        return ops.reshape(streams, -1, self.streams * streams.shape[-1])

    def logits(self, ops: Ops[A], hidden: A) -> A:
        """`[N, n H]` to `[N, V]`."""
        streams = ops.reshape(hidden, -1, self.streams, hidden.shape[-1] // self.streams)
        return ops.linear(self.mixture(ops, streams), self.head)


def states(config: FlashNextConfig) -> dict[str, StateSpec]:
    """Of every layer, and of the draft head's."""
    kept: dict[str, StateSpec] = {}
    for number, linear in enumerate(config.linear):
        kept |= layer_states(config, _state(number), linear=linear)
        if number in config.ngrams:
            kept |= ngram_states(_state(number), config.ngrams[number])
    if config.draft:
        kept |= layer_states(config, DRAFT_STATE, linear=False, group="draft")
    return kept


def _state(layer: int) -> str:
    return f"layers.{layer}"


def build(config: FlashNextConfig, weights: Weights[A]) -> FlashNextDecoder[A]:
    """The decoder over these weights. The vision tower is left; so is a draft head that the config does not tell of."""
    weights.ignore("model.visual.*", "visual.*", "vision_tower.*")
    names = text_names(weights, "embed_tokens.weight")
    root, table = names.root, (config.vocabulary, config.hidden)
    embedding = weights.embedding(f"{root}.embed_tokens", shape=table)
    head = weights.head(names.head, embedding if config.tied else None, shape=table)
    builder = LayerBuilder(config, weights)
    layers = tuple(
        builder.layer(f"{root}.layers.{number}", _state(number), number) for number in range(len(config.linear))
    )
    hashes = {
        layer.ngrams.name: ngram_hash(
            weights, f"{root}.layers.{number}.ple.ple_embedding", layer.ngrams.shape, config.boundary
        )
        for number, layer in enumerate(layers)
        if layer.ngrams is not None
    }
    return FlashNextDecoder(
        streams=config.streams.count,
        embedding=embedding,
        hashes=hashes,
        layers=layers,
        mixture=builder.mixture_of_streams(f"{root}.hyper_connection_mixer"),
        head=head,
        draft=draft_head(builder, embedding, head),
    )

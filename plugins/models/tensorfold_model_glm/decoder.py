"""The decoder: embedding, layers of either kind, last norm, output head; and the draft head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic

from numpy.typing import NDArray

from tensorfold.compute.layers import Block, RmsNorm, rms_norm
from tensorfold.compute.layers.draft_head import DraftHead
from tensorfold.compute.nested import text_names
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Embedding, Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import StateSpec
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights
from tensorfold_model_glm.config import GlmConfig
from tensorfold_model_glm.draft import DRAFT_STATE, draft_head
from tensorfold_model_glm.parts import layer_states
from tensorfold_model_glm.residual import SparseLayers, sparse_layer
from tensorfold_model_glm.streams import StreamLayers, stream_layer

__all__ = ["GlmDecoder", "build", "states"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GlmDecoder(Generic[A]):
    """A decoder with the checkpoint's draft head, if it has one."""

    embedding: Embedding
    layers: Block[A]
    """All of them: residual ones, or ones of several streams."""
    norm: RmsNorm[A]
    head: Linear
    draft: DraftHead[A] | None

    def prepare(self, step: Step[A]) -> Mapping[str, NDArray[Any]]:
        """Nothing is computed on the host."""
        return {}

    def forward(self, ops: Ops[A], step: Step[A]) -> A:
        """The rows after the last norm."""
        return self.norm(ops, self.layers(ops, step, ops.embed(step.ids, self.embedding)))

    def logits(self, ops: Ops[A], hidden: A) -> A:
        """`[N, H]` to `[N, V]`."""
        return ops.linear(hidden, self.head)


def states(config: GlmConfig) -> dict[str, StateSpec]:
    """Of every layer, and of the draft head's."""
    kept: dict[str, StateSpec] = {}
    for number, layer in enumerate(config.layers):
        kept |= layer_states(config, layer, _state(number))
    if config.draft:
        kept |= layer_states(config, config.draft_layer, DRAFT_STATE, "draft")
    return kept


def _state(layer: int) -> str:
    return f"layers.{layer}"


def build(config: GlmConfig, weights: Weights[A]) -> GlmDecoder[A]:
    """The decoder over these weights. The vision tower is left; so is a draft head that the config does not tell of."""
    weights.ignore("model.visual.*", "visual.*", "vision_tower.*")
    names = text_names(weights, "embed_tokens.weight")
    root, table = names.root, (config.vocabulary, config.hidden)
    embedding = weights.embedding(f"{root}.embed_tokens", shape=table)
    head = weights.head(names.head, embedding if config.tied else None, shape=table)
    behind = f"{root}.layers.{len(config.layers)}"
    draft: DraftHead[A] | None = None
    if config.draft and weights.has_draft(f"{behind}.eh_proj.weight"):
        draft = draft_head(config, weights, behind, embedding, head)
    else:
        weights.ignore(f"{behind}.*")
    return GlmDecoder(
        embedding=embedding,
        layers=_layers(config, weights, root),
        norm=rms_norm(weights, f"{root}.norm", config.hidden, config.eps),
        head=head,
        draft=draft,
    )


def _layers(config: GlmConfig, weights: Weights[A], root: str) -> Block[A]:
    named = [(layer, f"{root}.layers.{number}", _state(number)) for number, layer in enumerate(config.layers)]
    if config.streams is None:
        return SparseLayers(
            tuple(sparse_layer(config, weights, prefix, state, layer) for layer, prefix, state in named)
        )
    streams = config.streams
    return StreamLayers(
        streams.count,
        tuple(stream_layer(config, streams, weights, prefix, state, layer) for layer, prefix, state in named),
    )

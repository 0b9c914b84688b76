"""The decoder: pre-norm residual layers whose mixer is a gated delta net or gated attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic

from numpy.typing import NDArray

from tensorfold.compute.layers import Block, RmsNorm
from tensorfold.compute.layers.draft_head import DraftHead
from tensorfold.compute.nested import text_names
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Embedding, Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import KV, StateSpec
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights
from tensorfold_model_qwen.config import QwenConfig
from tensorfold_model_qwen.draft import DRAFT_STATE, draft_head
from tensorfold_model_qwen.layers import LayerBuilder, is_converted

__all__ = ["QwenDecoder", "build", "states"]


@dataclass(frozen=True, slots=True, eq=False)
class QwenDecoder(Generic[A]):
    """A decoder, with the draft head that its checkpoint may have."""

    embedding: Embedding
    layers: tuple[Block[A], ...]
    norm: RmsNorm[A]
    head: Linear
    draft: DraftHead[A] | None

    def prepare(self, step: Step[A]) -> Mapping[str, NDArray[Any]]:
        """Nothing is computed on the host."""
        return {}

    def forward(self, ops: Ops[A], step: Step[A]) -> A:
        """The rows after the last norm, which the draft head wants too."""
        x = ops.embed(step.ids, self.embedding)
        for layer in self.layers:
            x = layer(ops, step, x)
        return self.norm(ops, x)

    def logits(self, ops: Ops[A], hidden: A) -> A:
        """`[N, H]` to `[N, V]`."""
        return ops.linear(hidden, self.head)


def states(config: QwenConfig) -> dict[str, StateSpec]:
    """Keys and values of attention layers, tail and recurrence of the others; keys and values of the draft head."""
    found: dict[str, StateSpec] = {}
    for layer, kind in enumerate(config.kinds):
        if kind == "full_attention":
            found[f"layers.{layer}.kv"] = KV(config.kv_heads, config.head_dim, config.head_dim)
        else:
            found |= config.delta.states(f"layers.{layer}")
    if config.draft:
        found[DRAFT_STATE] = KV(config.kv_heads, config.head_dim, config.head_dim, group="draft")
    return found


def build(config: QwenConfig, weights: Weights[A]) -> QwenDecoder[A]:
    """The decoder over these weights. The vision tower is left; so is a draft head that the config does not tell of."""
    weights.ignore("model.visual.*", "visual.*", "vision_tower.*")
    if not config.draft:
        weights.ignore("mtp.*")
    names = text_names(weights, "embed_tokens.weight")
    layers = LayerBuilder(config, weights, zero_centred=not is_converted(config, weights, names.root))
    table = (config.vocabulary, config.hidden)
    embedding = weights.embedding(f"{names.root}.embed_tokens", shape=table)
    decoder_layers = tuple(
        layers.layer(f"{names.root}.layers.{number}", f"layers.{number}", kind)
        for number, kind in enumerate(config.kinds)
    )
    norm = layers.norm(f"{names.root}.norm")
    head = weights.head(names.head, embedding if config.tied else None, shape=table)
    return QwenDecoder(embedding, decoder_layers, norm, head, draft_head(layers, embedding, head))

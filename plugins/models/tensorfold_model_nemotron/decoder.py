"""The decoder: pre-norm residual layers of one block each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic

from numpy.typing import NDArray

from tensorfold.compute.layers import Block, RmsNorm
from tensorfold.compute.layers.draft_head import DraftHead
from tensorfold.compute.nested import TextNames, text_names
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Embedding, Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import KV, Group, StateSpec
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights
from tensorfold_model_nemotron.config import NemotronConfig
from tensorfold_model_nemotron.draft import DRAFT_ROOT, draft_head
from tensorfold_model_nemotron.layers import LayerBuilder
from tensorfold_model_nemotron.pattern import BlockKind

__all__ = ["NemotronDecoder", "build", "states"]

_NAMES: Final = (TextNames("backbone", "lm_head"), TextNames("model", "lm_head"))
"""The checkpoints' own name of the root, and the one that transformers' module has."""


@dataclass(frozen=True, slots=True, eq=False)
class NemotronDecoder(Generic[A]):
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


def states(config: NemotronConfig) -> dict[str, StateSpec]:
    """Keys and values of attention blocks, tail and recurrence of Mamba blocks; the same of the draft head."""
    return _states(config, "layers", config.kinds, "main") | _states(
        config, f"{DRAFT_ROOT}.layers", config.draft_kinds, "draft"
    )


def _states(config: NemotronConfig, prefix: str, kinds: Iterable[BlockKind], group: Group) -> dict[str, StateSpec]:
    found: dict[str, StateSpec] = {}
    for layer, kind in enumerate(kinds):
        if kind == "attention":
            found[f"{prefix}.{layer}.kv"] = KV(config.kv_heads, config.head_dim, config.head_dim, group=group)
        elif kind == "mamba":
            found |= config.mamba.states(f"{prefix}.{layer}", group)
    return found


def build(config: NemotronConfig, weights: Weights[A]) -> NemotronDecoder[A]:
    """The decoder over these weights. A draft head that the config does not tell of is left."""
    # Scales of a quantized cache, which is not kept here.
    weights.ignore("*.k_scale", "*.v_scale")
    if not config.draft_kinds:
        weights.ignore(f"{DRAFT_ROOT}.*")
    names = text_names(weights, "embeddings.weight", _NAMES)
    layers = LayerBuilder(config, weights)
    table = (config.vocabulary, config.hidden)
    embedding = weights.embedding(f"{names.root}.embeddings", shape=table)
    decoder_layers = tuple(
        layers.layer(f"{names.root}.layers.{number}", f"layers.{number}", kind)
        for number, kind in enumerate(config.kinds)
    )
    norm = layers.norm(f"{names.root}.norm_f")
    head = weights.head(names.head, None, shape=table)
    return NemotronDecoder(embedding, decoder_layers, norm, head, draft_head(layers, embedding, head))

"""The draft head: the target's rows and the embedded next tokens, joined, through layers of their own."""

from __future__ import annotations

from typing import Final

from tensorfold.compute.layers.draft_head import DraftHead
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Embedding, Linear
from tensorfold_model_nemotron.layers import LayerBuilder

__all__ = ["DRAFT_ROOT", "draft_head"]

DRAFT_ROOT: Final = "mtp"
"""Of its tensors, and of its states in group `draft`."""


def draft_head(layers: LayerBuilder[A], embedding: Embedding, head: Linear) -> DraftHead[A] | None:
    """The head, if the config tells of one and the checkpoint still has it: converters drop it.

    What joins stands with the first layer, and the last norm with the last.
    """
    config, weights = layers.config, layers.weights
    first, last = f"{DRAFT_ROOT}.layers.0", f"{DRAFT_ROOT}.layers.{len(config.draft_kinds) - 1}"
    if not config.draft_kinds or not weights.has_draft(f"{first}.eh_proj.weight"):
        return None
    prefixes = (f"{DRAFT_ROOT}.layers.{number}" for number in range(len(config.draft_kinds)))
    return DraftHead(
        embedding=embedding,
        embedding_norm=layers.norm(f"{first}.enorm"),
        hidden_norm=layers.norm(f"{first}.hnorm"),
        join=weights.linear(f"{first}.eh_proj", sizes=(config.hidden,), columns=2 * config.hidden, bias=False),
        layers=tuple(
            layers.layer(prefix, prefix, kind) for prefix, kind in zip(prefixes, config.draft_kinds, strict=True)
        ),
        norm=layers.norm(f"{last}.final_layernorm"),
        head=head,
    )

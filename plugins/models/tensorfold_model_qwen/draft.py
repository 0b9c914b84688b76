"""The draft head: one layer of gated attention over the target's rows and the embedded next tokens."""

from __future__ import annotations

from typing import Final

from tensorfold.compute.layers.draft_head import DraftHead
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Embedding, Linear
from tensorfold_model_qwen.layers import LayerBuilder

__all__ = ["DRAFT_STATE", "draft_head"]

_ROOT: Final = "mtp"
_LAYER: Final = f"{_ROOT}.layers.0"
DRAFT_STATE: Final = f"{_LAYER}.kv"
"""Keys and values of its layer, in group `draft`."""


def draft_head(layers: LayerBuilder[A], embedding: Embedding, head: Linear) -> DraftHead[A] | None:
    """The head, if the config tells of one and the checkpoint still has it: converters drop it."""
    config, weights = layers.config, layers.weights
    if not config.draft or not weights.has_draft(f"{_ROOT}.fc.weight"):
        return None
    return DraftHead(
        embedding=embedding,
        embedding_norm=layers.norm(f"{_ROOT}.pre_fc_norm_embedding"),
        hidden_norm=layers.norm(f"{_ROOT}.pre_fc_norm_hidden"),
        join=weights.linear(f"{_ROOT}.fc", sizes=(config.hidden,), columns=2 * config.hidden, bias=False),
        layers=(layers.layer(_LAYER, _LAYER, "full_attention"),),
        norm=layers.norm(f"{_ROOT}.norm"),
        head=head,
    )

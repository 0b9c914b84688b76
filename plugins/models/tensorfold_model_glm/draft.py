"""The checkpoint's own draft head, which lies as one more layer behind the last.

Its layer is a plain residual one with an indexer of its own, in Flash too: the head has no streams. What the target
gives it is the row after its last norm.
"""

from __future__ import annotations

from tensorfold.compute.layers import rms_norm
from tensorfold.compute.layers.draft_head import DraftHead
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Embedding, Linear
from tensorfold.contracts.weights import Weights
from tensorfold_model_glm.config import GlmConfig
from tensorfold_model_glm.residual import SparseLayers, sparse_layer

__all__ = ["DRAFT_STATE", "draft_head"]

DRAFT_STATE = "draft"
"""What the names of its states begin with."""


def draft_head(config: GlmConfig, weights: Weights[A], prefix: str, embedding: Embedding, head: Linear) -> DraftHead[A]:
    """The head of the layer under a prefix."""
    # Some checkpoints keep copies there of what the head shares with the target.
    weights.ignore(f"{prefix}.embed_tokens.weight", f"{prefix}.shared_head.head.weight")
    return DraftHead(
        embedding=embedding,
        embedding_norm=rms_norm(weights, f"{prefix}.enorm", config.hidden, config.eps),
        hidden_norm=rms_norm(weights, f"{prefix}.hnorm", config.hidden, config.eps),
        join=weights.linear(f"{prefix}.eh_proj", sizes=(config.hidden,), columns=2 * config.hidden, bias=False),
        layers=(SparseLayers((sparse_layer(config, weights, prefix, DRAFT_STATE, config.draft_layer),)),),
        norm=rms_norm(weights, f"{prefix}.shared_head.norm", config.hidden, config.eps),
        head=head,
    )

"""The checkpoint's own draft head, which reads and writes residual streams as the target does.

The target's streams of position p are normalized together and projected one by one, the normalized embedding of token
p + 1 is projected and added to each; a layer of sparse attention and a mixture of the streams follow. What that gives
predicts token p + 2, and the streams before it take the place of the target's when the head drafts further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic

from numpy.typing import NDArray

from tensorfold.compute.layers import RmsNorm, rms_norm
from tensorfold.compute.layers.hyper_connections import GatedMixture
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Embedding, Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step
from tensorfold_model_flash_next.layer import LayerBuilder, StreamLayer

__all__ = ["DRAFT_STATE", "FlashNextDraftHead", "draft_head"]

_ROOT: Final = "mtp"
DRAFT_STATE: Final = "draft"
"""What the names of its states begin with."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FlashNextDraftHead(Generic[A]):
    """A decoder of the group `draft`."""

    streams: int
    embedding: Embedding
    """The target's, and so the output head."""
    embedding_norm: RmsNorm[A]
    embedding_join: Linear
    hidden_norm: RmsNorm[A]
    """Over all streams together."""
    hidden_join: Linear
    """Of one stream, the same for each."""
    layer: StreamLayer[A]
    mixture: GatedMixture[A]
    head: Linear

    @property
    def draft(self) -> None:
        """A draft head has none."""
        return

    def prepare(self, step: Step[A]) -> Mapping[str, NDArray[Any]]:
        """Nothing is computed on the host."""
        return {}

    def forward(self, ops: Ops[A], step: Step[A]) -> A:
        """`[R, n H]`, streams as the target gives them."""
        token = ops.linear(self.embedding_norm(ops, ops.embed(step.ids, self.embedding)), self.embedding_join)
        before = self.hidden_norm(ops, step.inputs["hidden"])
        hidden: int = token.shape[-1]
        each = ops.linear(ops.reshape(before, -1, hidden), self.hidden_join)
        joined: A = ops.reshape(each, -1, self.streams, hidden) + ops.reshape(token, -1, 1, hidden)
        return ops.reshape(self.layer(ops, step, joined), -1, self.streams * hidden)

    def logits(self, ops: Ops[A], hidden: A) -> A:
        """`[N, n H]` to `[N, V]`."""
        streams = ops.reshape(hidden, -1, self.streams, hidden.shape[-1] // self.streams)
        return ops.linear(self.mixture(ops, streams), self.head)


def draft_head(layers: LayerBuilder[A], embedding: Embedding, head: Linear) -> FlashNextDraftHead[A] | None:
    """The head, if the config tells of one and the checkpoint still has it: converters drop it."""
    config, weights = layers.config, layers.weights
    if not config.draft or not weights.has_draft(f"{_ROOT}.fc_embedding.weight"):
        weights.ignore(f"{_ROOT}.*")
        return None

    def join(name: str) -> Linear:
        return weights.linear(f"{_ROOT}.{name}", sizes=(config.hidden,), columns=config.hidden, bias=False)

    def norm(name: str, width: int) -> RmsNorm[A]:
        return rms_norm(weights, f"{_ROOT}.{name}", width, config.eps, zero_centred=True)

    return FlashNextDraftHead(
        streams=config.streams.count,
        embedding=embedding,
        embedding_norm=norm("pre_fc_norm_embedding", config.hidden),
        embedding_join=join("fc_embedding"),
        hidden_norm=norm("pre_fc_norm_hidden", config.wide),
        hidden_join=join("fc_hidden"),
        layer=layers.draft_layer(f"{_ROOT}.layers.0", DRAFT_STATE),
        mixture=layers.mixture_of_streams(f"{_ROOT}.hyper_connection_mixer"),
        head=head,
    )

"""Gemma 4's drafter: a few narrow layers over the target's keys and values, which has no states of its own.

The row for token p + 1 is made of the target's row p and of the token's embedding in the target, and its queries stand
at p + 1; the target's keys reach to p. Further guesses stand there as well: only row and token are other ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.layers import RmsNorm
from tensorfold.compute.nested import text_names
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Linear, Router
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights
from tensorfold_model_gemma.decoder import GemmaDecoder
from tensorfold_model_gemma.layers import GemmaLayer, LayerBuilder
from tensorfold_model_gemma.pairing import AssistantConfig, Centroids

__all__ = ["Assistant", "AssistantBody", "Clusters", "assistant_body"]

_OUT: Final = -3e4
"""Added to the logits of tokens in clusters that are not chosen; a half-precision number."""


@dataclass(frozen=True, slots=True, eq=False)
class Clusters(Generic[A]):
    """Which tokens a row may guess: those of the clusters whose centroids are nearest to it."""

    centroids: Linear
    count: int
    router: Router
    of_token: NDArray[np.int32]
    """`[V]`: each token's cluster."""

    def prepare(self, rows: int) -> Mapping[str, NDArray[Any]]:
        """Places in the rows' scores `[R, clusters]`, laid end to end: of each row's first, and of every token's."""
        first = np.arange(rows, dtype=np.int32)[:, None] * self.count
        return {"first": first, "tokens": first + self.of_token}

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, h]` to what is added to the logits, `[R, V]`."""
        scores = ops.linear(x, self.centroids, wide=True)
        chosen, _ = ops.route(scores, self.router)
        flat = ops.reshape(scores, -1)
        least = ops.rows(flat, (chosen + step.inputs["first"])[:, self.router.k - 1])
        # 1 where a centroid is below the least that is chosen, else 0.
        below = ops.maximum(ops.sign(ops.reshape(least, -1, 1) + scores * -1.0), 0.0)
        return ops.rows(ops.reshape(below * _OUT, -1), step.inputs["tokens"])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AssistantBody(Generic[A]):
    """All that a drafter's checkpoint holds."""

    width: int
    """H, of the target's rows."""
    join: Linear
    """Embedding and hidden row, side by side in this order, to one row."""
    layers: tuple[GemmaLayer[A], ...]
    norm: RmsNorm[A]
    back: Linear
    """To a row that stands for the target's."""
    head: Linear
    clusters: Clusters[A] | None


@dataclass(frozen=True, slots=True, eq=False)
class Assistant(Generic[A]):
    """A draft head that reads the target's states. Its rows are laid side by side from what is needed of them."""

    target: GemmaDecoder[A]
    """Embeds the tokens."""
    body: AssistantBody[A]

    @property
    def draft(self) -> None:
        """A drafter has none."""
        return

    def prepare(self, step: Step[A]) -> Mapping[str, NDArray[Any]]:
        """Where clusters are looked up."""
        clusters = self.body.clusters
        return {} if clusters is None else clusters.prepare(step.rows)

    def forward(self, ops: Ops[A], step: Step[A]) -> A:
        """Rows that stand for the target's, h numbers for the logits, and what is added to those."""
        body = self.body
        before, *_ = ops.split(step.inputs["hidden"], (body.width,))
        x = ops.linear(ops.concat([self.target.embed(ops, step.ids), before]), body.join)
        for layer in body.layers:
            x = layer.body(ops, step, x)
            if layer.scale != 1.0:
                x = x * layer.scale
        x = body.norm(ops, x)
        rows = [ops.linear(x, body.back), x]
        return ops.concat(rows if body.clusters is None else [*rows, body.clusters(ops, step, x)])

    def logits(self, ops: Ops[A], hidden: A) -> A:
        """`[N, H + h]` or `[N, H + h + V]` to `[N, V]`."""
        body = self.body
        sizes = (body.width, body.head.columns, *body.head.sizes)
        _, own, *added = ops.split(hidden, sizes[: 2 + bool(body.clusters)])
        logits = ops.linear(own, body.head)
        return logits + added[0] if added else logits


def assistant_body(config: AssistantConfig, weights: Weights[A]) -> AssistantBody[A]:
    """The drafter over these weights."""
    body = config.body
    names = text_names(weights, "embed_tokens.weight")
    layers = LayerBuilder(body, weights, drafts=True)
    table = (body.vocabulary, body.hidden)
    tied = weights.embedding(f"{names.root}.embed_tokens", shape=table) if body.tied else None
    if tied is None:
        # The target embeds the tokens.
        weights.ignore(f"{names.root}.embed_tokens.weight")
    if config.centroids is None:
        # Clusters that the config does not ask for, or of which a GGUF file does not say how many are chosen.
        weights.ignore("masked_embedding.*")
    return AssistantBody(
        width=config.target,
        join=weights.linear("pre_projection", sizes=(body.hidden,), columns=2 * config.target, bias=False),
        layers=tuple(layers.layer(f"{names.root}.layers.{number}", number) for number in range(len(body.layers))),
        norm=layers.norm(f"{names.root}.norm"),
        back=weights.linear("post_projection", sizes=(config.target,), columns=body.hidden, bias=False),
        head=weights.head(names.head, tied, shape=table),
        clusters=None
        if config.centroids is None
        else _clusters(config.centroids, body.vocabulary, body.hidden, weights),
    )


def _clusters(sizes: Centroids, vocabulary: int, hidden: int, weights: Weights[A]) -> Clusters[A]:
    # Tokens in the order of their clusters; the inverse says where each token is.
    order = weights.ints("masked_embedding.token_ordering", shape=(vocabulary,))
    places = np.argsort(order, kind="stable")
    return Clusters(
        centroids=weights.linear("masked_embedding.centroids", sizes=(sizes.count,), columns=hidden, bias=False),
        count=sizes.count,
        router=Router(k=sizes.chosen, score="softmax"),
        of_token=(places // (vocabulary // sizes.count)).astype(np.int32),
    )

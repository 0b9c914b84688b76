"""The draft head that checkpoints bring along for multi-token prediction (arXiv 2412.19437, section 2.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic

from numpy.typing import NDArray

from tensorfold.compute.layers.block import Block
from tensorfold.compute.layers.norm import RmsNorm
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Embedding, Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step

__all__ = ["DraftHead"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DraftHead(Generic[A]):
    """A decoder of the group `draft`: the target's row p and token p + 1 give the row from which token p + 2 comes.

    Embedding and output head are the target's. Its own rows stand for the target's when it drafts further.
    """

    embedding: Embedding
    embedding_norm: RmsNorm[A]
    hidden_norm: RmsNorm[A]
    join: Linear
    """Embedding and hidden row, side by side in this order, to one row."""
    layers: tuple[Block[A], ...]
    norm: RmsNorm[A]
    head: Linear

    @property
    def draft(self) -> None:
        """A draft head has none."""
        return

    def prepare(self, step: Step[A]) -> Mapping[str, NDArray[Any]]:
        """Nothing is computed on the host."""
        return {}

    def forward(self, ops: Ops[A], step: Step[A]) -> A:
        """The rows after the last norm."""
        token = self.embedding_norm(ops, ops.embed(step.ids, self.embedding))
        before = self.hidden_norm(ops, step.inputs["hidden"])
        x = ops.linear(ops.concat([token, before]), self.join)
        for layer in self.layers:
            x = layer(ops, step, x)
        return self.norm(ops, x)

    def logits(self, ops: Ops[A], hidden: A) -> A:
        """`[N, H]` to `[N, V]`."""
        return ops.linear(hidden, self.head)

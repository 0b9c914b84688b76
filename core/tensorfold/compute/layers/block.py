"""What a block is."""

from __future__ import annotations

from typing import Protocol

from tensorfold.contracts.arrays import A
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step

__all__ = ["Block"]


class Block(Protocol[A]):
    """A part of a decoder, from rows to rows."""

    def __call__(self, ops: Ops[A], step: Step[A], x: A, /) -> A:
        """`[R, H]` to `[R, H]`."""
        ...

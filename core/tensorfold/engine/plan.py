"""Where a prompt is cut into chunks: a function of its ids alone, so that its bits do not depend on its history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Chunk", "chunk_plan"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Prompt positions that are computed in one step."""

    start: int
    end: int
    """Exclusive."""


def chunk_plan(ids: Sequence[int], step: int) -> tuple[Chunk, ...]:
    """The chunks of a prompt, in order; `step` is the backend's constant."""
    return tuple(Chunk(start, min(start + step, len(ids))) for start in range(0, len(ids), step))

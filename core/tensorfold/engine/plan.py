"""Where a prompt is cut into chunks: a function of its ids alone, so that its bits do not depend on its history.

Two prompts that agree up to a position at which both begin a chunk are cut alike before it: a marker is told from the
token that stands at it, and the next start never lies closer than `LEAST`. So what one of them left there serves the
other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["LEAST", "Chunk", "chunk_plan"]

LEAST = 256
"""Positions that a chunk has at least where a marker ends it."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Prompt positions that are computed in one step."""

    start: int
    end: int
    """Exclusive."""


def chunk_plan(length: int, markers: Sequence[int], step: int, branch: int | None = None) -> tuple[Chunk, ...]:
    """The chunks of a prompt of `length` tokens, in order.

    The next chunk begins at the first marker in [start + LEAST, start + step], else at start + step.

    Args:
        markers: positions at which messages open, ascending.
        step: the most tokens of a chunk, a constant of the backend or of the configuration.
        branch: a position at which a chunk begins in any case.
    """
    chunks: list[Chunk] = []
    start = 0
    while start < length:
        end = start + step
        place = bisect_left(markers, start + LEAST)
        if place < len(markers):
            end = min(end, markers[place])
        if branch is not None and start < branch < end:
            end = branch
        chunks.append(Chunk(start, min(end, length)))
        start = end
    return tuple(chunks)

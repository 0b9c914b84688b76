"""The default scheduling policy."""

from __future__ import annotations

from collections.abc import Sequence

from tensorfold.contracts.policy import Load, Running, Waiting
from tensorfold.errors import Rejected
from tensorfold.ir import Request

__all__ = ["DefaultPolicy"]

PASSES = 8
"""Chunks given to others after which a prompt is next among its own kind."""
BACKGROUND_PASSES = 64
"""The same for a background prompt among all: it waits long, not for ever."""


class DefaultPolicy:
    """Foreground before background, then the prompt with fewest tokens left, then the one that came first."""

    name = "default"

    def __init__(self, *, queue: int = 64) -> None:
        """`queue` is how many requests may wait beyond those that the lanes can run."""
        self._queue = queue

    def admit(self, request: Request, load: Load) -> None:
        """Up to the queue's bound.

        Raises:
            Rejected: the queue is full.
        """
        inside = load.running + load.waiting
        if inside >= load.lanes + self._queue:
            raise Rejected(
                f"{inside} requests are running or waiting, and at most {load.lanes + self._queue} may: try again later",
                status=503,
                retry_after=1.0 + inside / load.lanes,
            )

    def order(self, waiting: Sequence[Waiting]) -> Sequence[Waiting]:
        """Shortest first, and nobody is passed over for ever."""
        return sorted(waiting, key=_rank)

    def victim(self, running: Sequence[Running], wanting: Waiting | None) -> Running | None:
        """The newest, background first; for a prompt that wants a lane or memory, background yields to foreground."""
        background = [each for each in running if each.priority == "background"]
        if wanting is None:
            return max(background or running, key=_started, default=None)
        return max(background, key=_started, default=None) if wanting.priority == "foreground" else None


def _rank(waiting: Waiting) -> tuple[bool, bool, int, float]:
    background = waiting.priority == "background" and waiting.passed_over < BACKGROUND_PASSES
    starved = waiting.passed_over >= PASSES
    return background, not starved, -waiting.passed_over if starved else waiting.tokens_left, waiting.arrived


def _started(running: Running) -> float:
    return running.started

"""How many guesses each reply gets in a round: as many as give the most tokens a second, and none when none pays."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Protocol

from tensorfold.engine.costs import StepCosts

__all__ = ["Deepest", "Depth", "MeasuredDepth"]

IDLE = 8
"""Rounds without a guess after which one is tried: the text may have become easier to guess."""
EXPLORE = 24
"""Rounds after which costs are taken to be as low as they may be, once: a step that was slow by chance is run again."""
GAIN = 1.02
"""More tokens a second than without guesses, by this factor, or it is not worth the trouble."""


class Depth(Protocol):
    """Shares out the rows of a round."""

    def share(self, outlooks: Sequence[Sequence[float]], most: int) -> list[int]:
        """How many guesses each reply gets, `most` rows in all.

        `outlooks` holds, for each reply, the chance that its first, second, ... guess is kept.
        """
        ...

    def ran(self, rows: int, seconds: float) -> None:
        """A round took so long."""
        ...


class Deepest:
    """All guesses there are, in equal shares: for tests, and for whoever measures."""

    def share(self, outlooks: Sequence[Sequence[float]], most: int) -> list[int]:
        """As many as fit."""
        each = max(1, most // max(1, len(outlooks))) - 1
        return [min(len(outlook), each) for outlook in outlooks]

    def ran(self, rows: int, seconds: float) -> None:
        """Costs do not matter here."""


class MeasuredDepth:
    """The most expected tokens a second, from what rounds of each size have cost."""

    def __init__(self, known: Mapping[int, float] | None = None) -> None:
        """`known` are seconds by rows from a trial run."""
        self._costs = StepCosts(known)
        self._idle = 0
        self._rounds = 0

    def share(self, outlooks: Sequence[Sequence[float]], most: int) -> list[int]:
        """The likeliest guesses first, as long as each further one makes the round worth more than it costs."""
        counts = [0] * len(outlooks)
        room = min(most - len(outlooks), sum(map(len, outlooks)))
        if room <= 0 or not self._costs.known:
            return counts
        order = _likeliest(outlooks)[:room]
        self._rounds += 1
        rows = len(outlooks) + len(order)
        costs = self._costs.hoped(rows) if self._rounds % EXPLORE == 0 else self._costs.table(rows)
        best = _best([chance for chance, _ in order], len(outlooks), costs)
        for _, place in order[:best]:
            counts[place] += 1
        self._idle = 0 if best else self._idle + 1
        if self._idle >= IDLE:
            counts[order[0][1]] = 1
            self._idle = 0
        return counts

    def ran(self, rows: int, seconds: float) -> None:
        """Remember it."""
        self._costs.record(rows, seconds)


def _likeliest(outlooks: Sequence[Sequence[float]]) -> list[tuple[float, int]]:
    """Every guess's chance and reply, the likeliest first; a reply's guesses stay in their order."""
    runs = [[(chance, place) for chance in outlook] for place, outlook in enumerate(outlooks)]
    return list(heapq.merge(*runs, key=lambda each: -each[0]))


def _best(chances: Sequence[float], replies: int, costs: Sequence[float]) -> int:
    """How many guesses, the likeliest first, make the round's tokens cheapest."""
    tokens, best = float(replies), 0
    most = GAIN * tokens / max(costs[replies], 1e-9)
    for count, chance in enumerate(chances, start=1):
        tokens += chance
        rate = tokens / max(costs[replies + count], 1e-9)
        if rate > most:
            most, best = rate, count
    return best

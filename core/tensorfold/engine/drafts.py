"""Who guesses the next tokens. A guess is kept only if it is what would have been drawn, so it changes speed alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias

__all__ = ["Chances", "Drafter", "Drafting", "Odds", "Source"]

Source: TypeAlias = Literal["drafter", "head"]
"""Where a guess comes from: a `Drafter`, or the checkpoint's own draft head."""

WEIGHT: Final = 6.0
"""Guesses that a reply must have seen to count as much as what it began with."""
MEMORY: Final = 48.0
"""Guesses after which an older one counts a third."""
FIRST: Final[Mapping[Source, float]] = {"drafter": 0.8, "head": 0.7}
"""What is expected of guesses before any was compared."""


class Drafter(Protocol):
    """Guesses for one reply."""

    def extend(self, token: int) -> None:
        """One more token of the reply was kept."""
        ...

    def propose(self, most: int) -> Sequence[int]:
        """Up to `most` guesses for the tokens that follow those kept, in order; empty: no idea."""
        ...


class Drafting(Protocol):
    """A way of guessing; makes a drafter for each reply."""

    def begin(self, prompt: Sequence[int]) -> Drafter:
        """A drafter for a fresh reply to this prompt."""
        ...


class Odds:
    """How often guesses of one kind are right: a running share that begins with what is expected."""

    def __init__(self, expected: float) -> None:
        self._expected = expected
        self._right = 0.0
        self._tried = 0.0

    @property
    def rate(self) -> float:
        """The chance that the next guess is right, given that those before it were."""
        return (self._right + WEIGHT * self._expected) / (self._tried + WEIGHT)

    def learn(self, right: int, wrong: int) -> None:
        """So many guesses were compared."""
        fade = (1.0 - 1.0 / MEMORY) ** (right + wrong)
        self._right = self._right * fade + right
        self._tried = self._tried * fade + right + wrong


class Chances:
    """What guesses were worth over all replies of an engine; a new reply begins with that."""

    def __init__(self) -> None:
        self._odds: dict[Source, Odds] = {source: Odds(expected) for source, expected in FIRST.items()}

    def begin(self) -> dict[Source, Odds]:
        """A fresh reply's own odds."""
        return {source: Odds(odds.rate) for source, odds in self._odds.items()}

    def learn(self, source: Source, right: int, wrong: int) -> None:
        """So many guesses of one kind were compared."""
        self._odds[source].learn(right, wrong)

"""Who guesses the next tokens. A guess is kept only if it is what would have been drawn, so it changes speed alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["Drafter", "Drafting"]


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

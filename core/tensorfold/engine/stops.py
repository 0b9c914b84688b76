"""Stop strings in text that comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["Scan", "StopScanner"]


class Scan(msgspec.Struct, frozen=True):
    """What is known after one more piece of text."""

    text: str
    """Text that no stop string can claim any more."""
    matched: str | None = None
    """The stop string that ended the reply; nothing may be fed afterwards."""


class StopScanner:
    """Finds the stop string that is complete first, and of those that end together the longest.

    So the result does not depend on how the text is cut into pieces. Text that may yet belong to a stop string is
    held back.
    """

    def __init__(self, stops: Sequence[str], *, keep: bool = False) -> None:
        """`keep` leaves the matched text in the reply."""
        self._stops = tuple(dict.fromkeys(stops))
        self._keep = keep
        self._held = ""

    @property
    def idle(self) -> bool:
        """Whether there is no string to look for, so that all text is free as it comes."""
        return not self._stops

    def feed(self, text: str) -> Scan:
        """One more piece."""
        if self.idle:
            return Scan(text)
        text = self._held + text
        match = self._first(text)
        if match is not None:
            start, stop = match
            self._held = ""
            return Scan(text[: start + len(stop)] if self._keep else text[:start], stop)
        held = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - held :]
        return Scan(text[: len(text) - held])

    def _first(self, text: str) -> tuple[int, str] | None:
        """Where the first complete stop string begins, and which it is."""
        # An earlier piece held back whatever could begin a match, so no match begins before `text` does.
        found = [(start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        return min(found, key=lambda each: (each[0] + len(each[1]), each[0]), default=None)

    def finish(self) -> str:
        """The reply has ended without a match: the text held back."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop` and is not all of it."""
    longest = min(len(stop) - 1, len(text))
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)

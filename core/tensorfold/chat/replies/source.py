"""A reply's text as it comes, and the steps that its readers are made of."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, TypeAlias, TypeVar

__all__ = ["MAX_BLANKS", "Mismatch", "Reading", "Source", "expect", "more", "next_of", "skip_blanks", "until"]

T = TypeVar("T")

Reading: TypeAlias = Generator[None, None, T]
"""A reader: it yields when all text that is there was used and more is needed, and returns what it has read."""

MAX_BLANKS: Final = 256
"""Characters of white space that may stand between two marks."""


class Mismatch(Exception):
    """The text is not what a reader looks for, or has ended before that."""


class Source:
    """Text read from the front. Consumed text is gone, unless it is kept to be read again."""

    def __init__(self) -> None:
        self.ended = False
        """The reply is over: no text follows."""
        self._text = ""
        self._at = 0
        self._number = 0
        self._kept: list[str] = []
        self._places: list[int] = []

    @property
    def number(self) -> int:
        """How many characters were consumed: the number of the next one."""
        return self._number

    def feed(self, text: str) -> None:
        """More of the reply."""
        self._text = self._text[self._at :] + text
        self._at = 0

    def end(self) -> None:
        """The reply is over."""
        self.ended = True

    # ---- reading -------------------------------------------------------------------------------------------

    @property
    def next(self) -> str:
        """The next character; empty: it is not there (yet)."""
        return self._text[self._at : self._at + 1]

    def begins(self, text: str) -> bool | None:
        """Whether this text stands next; None: it may, as far as can be seen."""
        if self._text.startswith(text, self._at):
            return True
        seen = self._text[self._at : self._at + len(text)]
        return None if text.startswith(seen) and not self.ended else False

    def skip(self, count: int) -> str:
        """Consume so many characters, which are there."""
        text = self._text[self._at : self._at + count]
        self._at += len(text)
        self._number += len(text)
        if self._places:
            self._kept.append(text)
        return text

    def take(self, markers: Sequence[str]) -> tuple[str, str]:
        """Consume the text before the first of these markers, and the marker, if it is there.

        Without one, all text is consumed but an end that may begin one; the marker is then empty. What of that is left
        when the reply is over is `rest`.
        """
        found = [(at, -len(marker), marker) for marker in markers if (at := self._text.find(marker, self._at)) >= 0]
        if found:
            at, _, marker = min(found)
            return self.skip(at - self._at), self.skip(len(marker))
        end = min((self._possible(marker) for marker in markers), default=len(self._text))
        return self.skip(end - self._at), ""

    def _possible(self, marker: str) -> int:
        """Where a marker may begin that is not all there; the text's end if nowhere."""
        text, end = self._text, len(self._text)
        at = text.find(marker[0], max(self._at, end - len(marker) + 1))
        while at >= 0:
            if marker.startswith(text[at:]):
                return at
            at = text.find(marker[0], at + 1)
        return end

    def rest(self) -> str:
        """Consume everything that is there."""
        return self.skip(len(self._text) - self._at)

    # ---- reading again -------------------------------------------------------------------------------------

    def keep(self, already: str = "") -> int:
        """Keep from here on, and what was just consumed, until `forget` or `again` gets the place that this returns.

        What a reader kept within and left behind when it broke off goes with it.
        """
        if not self._places:
            self._kept = [already]
        self._places.append(self._number - len(already))
        return len(self._places) - 1

    def forget(self, place: int) -> None:
        """What was kept since this place is not needed any more."""
        del self._places[place:]
        if not self._places:
            self._kept.clear()

    def again(self, place: int) -> None:
        """Go back to this place."""
        back = self._number - self._places[place]
        del self._places[place:]
        kept = "".join(self._kept)
        cut = len(kept) - back
        self._kept = [kept[:cut]] if self._places else []
        self._text = kept[cut:] + self._text[self._at :]
        self._at = 0
        self._number -= back


def more(source: Source) -> Reading[None]:
    """Wait for text.

    Raises:
        Mismatch: the reply is over.
    """
    if source.ended:
        raise Mismatch
    yield


def skip_blanks(source: Source) -> Reading[None]:
    """Consume white space, up to a character that is none or the reply's end.

    Raises:
        Mismatch: there is too much of it.
    """
    for _ in range(MAX_BLANKS):
        while not source.next and not source.ended:
            yield
        if not source.next.isspace():
            return
        source.skip(1)
    raise Mismatch


def next_of(source: Source, texts: Sequence[str]) -> Reading[str]:
    """Which of these texts stands next; it is not consumed.

    Raises:
        Mismatch: none of them, or the reply is over.
    """
    while True:
        states = [source.begins(text) for text in texts]
        if True in states:
            return texts[states.index(True)]
        if None not in states:
            raise Mismatch
        yield from more(source)


def expect(source: Source, *texts: str) -> Reading[str]:
    """Consume the one of these texts that stands next.

    Raises:
        Mismatch: none of them, or the reply is over.
    """
    found = yield from next_of(source, texts)
    return source.skip(len(found))


def until(source: Source, *markers: str, most: int) -> Reading[tuple[str, str]]:
    """The text before the first of these markers, and which it is; both are consumed.

    Raises:
        Mismatch: the text is longer than `most` characters, or the reply is over.
    """
    parts: list[str] = []
    size = 0
    while True:
        text, marker = source.take(markers)
        parts.append(text)
        size += len(text)
        if size > most:
            raise Mismatch
        if marker:
            return "".join(parts), marker
        yield from more(source)

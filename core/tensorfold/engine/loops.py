"""Replies that only repeat themselves.

Two rules, both functions of the tokens so far, looked at every so many tokens:

- an exact repeat: the last tokens are the same ones over and over, at least 4 times and 1,024 tokens in all;
- a near repeat: the last text is copies that are equal once digits and blanks are folded, or whose edit distance is at
  most a tenth of their length, at least 8 of them and 8,192 tokens in all.
"""

from __future__ import annotations

import re
from array import array
from itertools import pairwise
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["LoopDetector", "Repeat", "edit_distance"]

Repeat: TypeAlias = Literal["exact", "near"]

EXACT_COPIES: Final = 4
EXACT_TOKENS: Final = 1024
NEAR_COPIES: Final = 8
NEAR_TOKENS: Final = 8192
NEAR_SHARE: Final = 0.1
"""Of a copy's length: the edit distance up to which the next one is nearly the same."""

EXACT_EVERY: Final = 32
"""Tokens between two looks for an exact repeat."""
NEAR_EVERY: Final = 512
"""Tokens between two looks for a near one."""
WINDOW: Final = 65_536
"""Tokens that are looked back at."""
ANCHOR: Final = 32
"""Tokens, or characters, whose earlier occurrences tell how long a copy may be."""
MOST_OCCURRENCES: Final = 64
"""Of an anchor, the latest ones that are tried."""
MOST_PARTS: Final = 8
"""Occurrences of an anchor within one copy."""

_DIGITS: Final = re.compile(r"\d+")
_BLANKS: Final = re.compile(r"\s+")


class LoopDetector:
    """Looks at one reply while it is written."""

    def __init__(self) -> None:
        self._tokens = array("q")
        self._ends = array("q")
        """Characters of the text behind each token."""
        self._texts: list[str] = []
        self._length = 0
        self._next_near = NEAR_TOKENS

    def feed(self, token: int, text: str) -> Repeat | None:
        """One more token and the text that it completes; whether the reply has settled into repeating itself."""
        self._tokens.append(token)
        self._texts.append(text)
        self._length += len(text)
        self._ends.append(self._length)
        count = len(self._tokens)
        if count >= EXACT_TOKENS and count % EXACT_EVERY == 0 and self._exact():
            return "exact"
        if count >= self._next_near:
            if self._near():
                return "near"
            # Looks grow rarer as the text grows longer, so that all of them together stay linear.
            self._next_near = count + max(NEAR_EVERY, count // 16)
        return None

    # ---- exact repeats -------------------------------------------------------------------------------------

    def _exact(self) -> bool:
        tokens = np.asarray(self._tokens[-WINDOW:], dtype=np.int64)
        for period in _distances(tokens):
            run = _run(tokens, period)
            if run >= max(EXACT_TOKENS, EXACT_COPIES * period):
                return True
        return False

    # ---- near repeats --------------------------------------------------------------------------------------

    def _near(self) -> bool:
        first = max(len(self._tokens) - WINDOW, 0)
        text = "".join(self._texts[first:])
        folded = _Folded(text)
        least = self._ends[len(self._ends) - NEAR_TOKENS - 1] - (self._ends[first - 1] if first else 0)
        # A loop has to reach back to here.
        start = folded.place(max(least, 0))
        for back in (0, ANCHOR, 4 * ANCHOR, 16 * ANCHOR):
            end = len(folded.text) - back
            if end <= ANCHOR:
                return False
            if _repeats(folded.text, folded.text[end - ANCHOR : end], start):
                return True
        return False


def _distances(tokens: NDArray[np.int64]) -> list[int]:
    """How far before the end the last tokens stand once more, nearest first."""
    places = np.flatnonzero(tokens[:-1] == tokens[-1])
    for back in range(1, ANCHOR):
        places = places[places >= back]
        places = places[tokens[places - back] == tokens[-1 - back]]
        if not places.size:
            return []
    return [int(len(tokens) - 1 - place) for place in places[::-1][:MOST_OCCURRENCES]]


def _run(tokens: NDArray[np.int64], period: int) -> int:
    """How many tokens at the end repeat with this period."""
    differs = np.flatnonzero(tokens[period:] != tokens[:-period])
    return len(tokens) - (int(differs[-1]) + 1 if differs.size else 0)


class _Folded:
    """A text with each run of digits as one 0 and each run of white space as one blank."""

    def __init__(self, text: str) -> None:
        self._source = text
        self.text = _folded(text)

    def place(self, at: int) -> int:
        """Where a place of the source stands in the folded text."""
        return len(_folded(self._source[:at]))


def _folded(text: str) -> str:
    return _BLANKS.sub(" ", _DIGITS.sub("0", text))


def _repeats(text: str, anchor: str, start: int) -> bool:
    """Whether the text, from no later than `start` on, is copies that all hold the anchor."""
    places = _occurrences(text, anchor)
    if len(places) < NEAR_COPIES:
        return False
    for parts in range(1, MOST_PARTS + 1):
        cuts = places[::-1][::parts][::-1]
        if len(cuts) > NEAR_COPIES and _all_alike(text, cuts, start):
            return True
    return False


def _occurrences(text: str, anchor: str) -> list[int]:
    places: list[int] = []
    at = text.find(anchor)
    while at >= 0:
        places.append(at)
        at = text.find(anchor, at + 1)
    return places


def _all_alike(text: str, cuts: list[int], start: int) -> bool:
    """Whether the copies between these cuts are nearly the same, from the last one back to one that begins by `start`."""
    later: str | None = None
    for copies, (begin, end) in enumerate(reversed(list(pairwise(cuts))), start=1):
        copy = text[begin:end]
        if later is not None and not _alike(copy, later):
            return False
        later = copy
        if begin <= start and copies >= NEAR_COPIES:
            return True
    return False


def _alike(one: str, other: str) -> bool:
    most = int(NEAR_SHARE * max(len(one), len(other)))
    return one == other or (abs(len(one) - len(other)) <= most and edit_distance(one, other) <= most)


def edit_distance(one: str, other: str) -> int:
    """Insertions, deletions and replacements between two texts (Myers' bit vectors, a row in a few operations)."""
    if not one:
        return len(other)
    occurs: dict[str, int] = {}
    for place, character in enumerate(one):
        occurs[character] = occurs.get(character, 0) | 1 << place
    mask, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    rising, falling, distance = mask, 0, len(one)
    for character in other:
        match = occurs.get(character, 0)
        diagonal = (((match & rising) + rising) ^ rising) | match | falling
        up, down = falling | ~(diagonal | rising) & mask, diagonal & rising
        distance += (up & last != 0) - (down & last != 0)
        up = up << 1 | 1
        down <<= 1
        rising, falling = (down | ~(diagonal | up)) & mask, up & diagonal & mask
    return distance

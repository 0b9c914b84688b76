"""Where a reply is, told from its tokens alone: within its reasoning, within a call in there, or in the answer.

And the gate that closes the reasoning when its budget is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from tensorfold.contracts.chat import CallMarks, ThinkingMarks

__all__ = ["Place", "PlaceTracker", "ThinkingBudget"]

Part: TypeAlias = Literal["begin", "thinking", "answer"]
"""`begin`: nothing but white space and the beginning of the reasoning's mark."""

MAX_HEADER = 4096
"""Bytes behind a call's opener after which it counts as text."""
MAX_BLANKS = 256
"""Bytes of white space that may stand before the reasoning's mark."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reply is behind a token."""

    part: Part
    answered: bytes = b""
    """Of the latest token (and of what was held before it), what belongs to the answer."""
    called: bool = False
    """Within the reasoning: whether a call has begun there and is not whole."""
    calls: int = 0
    """Whole calls within the reasoning."""
    held: bytes = b""
    """What a mark may have begun in, or the beginning of a call."""


class PlaceTracker:
    """Follows a reply. Its places are immutable; nothing of it changes."""

    def __init__(
        self,
        marks: ThinkingMarks | None,
        call: CallMarks | None = None,
        begins_call: Callable[[str], bool | None] | None = None,
    ) -> None:
        """`call`: follow calls within the reasoning. `begins_call`: whether the text behind an opener is a call's
        header; None: it may become one.
        """
        self._start = b"" if marks is None else marks.start.encode()
        self._end = b"" if marks is None else marks.end.encode()
        self._again = marks is not None and marks.again
        self._opener = b"" if call is None else call.opener.encode()
        self._closer = b"" if call is None else call.closer.encode()
        self._begins_call = begins_call

    def advance(self, place: Place, data: bytes) -> Place:
        """The place behind these bytes more."""
        match place.part:
            case "begin":
                return self._begin(place.held + data)
            case "thinking":
                return self._think(replace(place, held=b"", answered=b""), place.held + data)
            case "answer":
                return self._answer(place, data, place.held)

    def waits(self, place: Place) -> bool:
        """Whether, within the reasoning, a call is being written or may be about to be."""
        return place.called or bool(self._opener and _overlap(place.held, self._opener))

    def _begin(self, text: bytes) -> Place:
        rest = text.lstrip()
        if rest.startswith(self._start):
            return self._think(Place("thinking"), rest[len(self._start) :])
        if self._start.startswith(rest) and len(text) - len(rest) <= MAX_BLANKS:
            return Place("begin", held=text)
        return self._answer(Place("answer"), text, b"")

    def _answer(self, place: Place, data: bytes, held: bytes) -> Place:
        if not self._again:
            return Place("answer", data, calls=place.calls)
        before, found, behind = (held + data).partition(self._start)
        if found:
            return self._think(Place("thinking", calls=place.calls), behind)
        keep = len(self._start) - 1
        return Place(
            "answer", data, calls=place.calls, held=before[len(before) - keep :] if keep < len(before) else before
        )

    def _think(self, place: Place, text: bytes) -> Place:
        """The reasoning goes on with this text, in which no mark was seen yet."""
        if place.called:
            return self._within_call(place, text)
        end, opener = text.find(self._end), text.find(self._opener) if self._opener else -1
        if end >= 0 and not 0 <= opener < end:
            return self._answer(Place("answer", calls=place.calls), text[end + len(self._end) :], b"")
        if opener >= 0:
            return self._within_call(replace(place, called=True), text[opener:])
        keep = max(_overlap(text, self._end), _overlap(text, self._opener) if self._opener else 0)
        return replace(place, held=text[len(text) - keep :])

    def _within_call(self, place: Place, text: bytes) -> Place:
        """`text` begins with the opener, as long as the header is not read; then with nothing that matters."""
        if text.startswith(self._opener):
            header = text[len(self._opener) :]
            begun = None if self._begins_call is None else self._begins_call(header.decode(errors="ignore"))
            if begun is False or len(header) > MAX_HEADER:
                return self._think(replace(place, called=False), header)
            if begun is None:
                return replace(place, held=text)
            text = header
        before, found, behind = text.partition(self._closer)
        if found:
            return self._think(replace(place, called=False, calls=place.calls + 1), behind)
        end = before.find(self._end)
        if end >= 0:
            # The reasoning is closed within what looked like a call: it was a mention.
            return self._answer(Place("answer", calls=place.calls), before[end + len(self._end) :], b"")
        keep = max(_overlap(before, self._closer), _overlap(before, self._end))
        return replace(place, held=before[len(before) - keep :])


def _overlap(text: bytes, mark: bytes) -> int:
    """Length of the longest end of a text that begins the mark and is not all of it."""
    longest = min(len(mark) - 1, len(text))
    return next((size for size in range(longest, 0, -1) if text.endswith(mark[:size])), 0)


# ---- the budget --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Spent:
    """How far a reply is with its budget."""

    place: Place
    tokens: int = 0
    """Up to the budget."""
    closing: int = 0
    """Tokens of the close that are written."""


class ThinkingBudget:
    """Closes the reasoning in place of the reply's `budget`-th token, if it is still open then.

    A call that was begun within the reasoning is written to its end first, and if the reply then ends it is the reply's
    call; else the reasoning is closed behind it.
    """

    def __init__(
        self,
        tracker: PlaceTracker,
        start: Place,
        budget: int,
        close: Sequence[int],
        data: Callable[[int], bytes],
        ends: Collection[int],
    ) -> None:
        """`close`: the tokens that close the reasoning. `data`: what a token adds to the text. `ends`: end tokens."""
        self._tracker = tracker
        self._begin = start
        self._budget = budget
        self._close = tuple(close)
        self._data = data
        self._ends = frozenset(ends)

    @property
    def start(self) -> Hashable:
        """Before the first token."""
        return _Spent(self._begin)

    def advance(self, state: Hashable, token: int) -> Hashable:
        """One token more."""
        spent = _spent(state)
        closing = spent.closing
        if 0 < closing < len(self._close) or (self._due(spent) and token == self._close[0]):
            closing += 1
        place = self._tracker.advance(spent.place, self._data(token))
        return _Spent(place, min(spent.tokens + 1, self._budget), closing)

    def forced(self, state: Hashable) -> int | None:
        """The close's next token, once the budget is spent."""
        spent = _spent(state)
        if 0 < spent.closing < len(self._close):
            return self._close[spent.closing]
        return self._close[0] if self._due(spent) and not spent.place.calls else None

    def allowed(self, state: Hashable) -> None:
        """Masks nothing."""
        return

    def replaced(self, state: Hashable, token: int) -> int:
        """Behind a call in the reasoning the reply may end or call again; what goes on thinking is the close instead."""
        spent = _spent(state)
        if not (self._due(spent) and spent.place.calls) or token in self._ends:
            return token
        place = self._tracker.advance(spent.place, self._data(token))
        goes_on = place.part == "thinking" and not self._tracker.waits(place) and not self._data(token).isspace()
        return self._close[0] if goes_on else token

    def _due(self, spent: _Spent) -> bool:
        return (
            not spent.closing
            and spent.place.part == "thinking"
            and spent.tokens + 1 >= self._budget
            and not self._tracker.waits(spent.place)
        )


def _spent(state: Hashable) -> _Spent:
    if not isinstance(state, _Spent):
        raise TypeError(f"the state of a thinking budget is {state!r}")
    return state

"""The parser of replies with markup, for every format: reasoning first, then text and calls as they come."""

from __future__ import annotations

from collections.abc import Sequence

from tensorfold.chat.replies.calls import CallNotation, Header, Unoffered
from tensorfold.chat.replies.markup import Markup
from tensorfold.chat.replies.offered import Offered
from tensorfold.chat.replies.pieces import Flow, PieceWriter
from tensorfold.chat.replies.source import Mismatch, Reading, Source, expect, skip_blanks
from tensorfold.contracts.chat import ReplyPiece, ThinkingMarks
from tensorfold.ir import TokenInfo

__all__ = ["MarkupParser"]


class MarkupParser:
    """Implements `contracts.chat.ReplyParser`.

    - White space before and behind reasoning, and before a call, belongs to the notation and is left out.
    - A call is held back until its header is read; from then on it stays a call. What is no call is text, markup and
      all; the rest of a well-formed call of a function that was not offered is text up to its closer, so that nothing
      quoted within it is a call.
    - A call within the reasoning is held back. Is the reasoning closed behind it, it was a mention, and stays in there;
      does the reply end before that, the reasoning ends where the call begins, and it is the reply's call.
    """

    def __init__(
        self,
        markup: Markup,
        offered: Offered,
        *,
        opened: bool = False,
        continued: bool = False,
        single_call: bool = False,
    ) -> None:
        """`opened`: the reply begins inside the reasoning. `continued`: it goes on with a text that was begun, so that
        white space at its beginning counts. `single_call`: at most one, and a whole one.
        """
        self._source = Source()
        self._pieces = PieceWriter(single=single_call)
        self._reasoning = markup.reasoning
        self._calls = markup.calls if offered else None
        self._bare_calls = markup.bare_calls if offered else None
        self._offered = offered
        self._thinking = opened
        self.reasoned: int | None = None
        """Implements `contracts.chat.EndsReasoningLate`."""
        self._continued = continued
        self._thought = Flow(self._pieces, "thinking")
        self._prose = Flow(self._pieces, "text")
        self._reading = self._reply()
        next(self._reading)

    @property
    def thinking(self) -> bool:
        """Whether the text so far ends inside the reasoning."""
        return self._thinking

    def feed(self, text: str, tokens: tuple[TokenInfo, ...]) -> Sequence[ReplyPiece]:
        """More of the reply's text."""
        self._pieces.expect(tokens)
        self._source.feed(text)
        next(self._reading, None)
        return self._pieces.take()

    def finish(self) -> Sequence[ReplyPiece]:
        """The reply has ended: what was held back."""
        self._source.end()
        next(self._reading, None)
        self._pieces.finish()
        return self._pieces.take()

    # ---- the whole reply -----------------------------------------------------------------------------------

    def _reply(self) -> Reading[None]:
        reasoning = self._reasoning
        if reasoning is not None and self._thinking:
            if not self._continued:
                self._thought.begin()
            yield from self._think(reasoning)
        elif reasoning is not None and not self._continued and (yield from self._begins(reasoning.start)):
            self._thought.begin()
            yield from self._think(reasoning)
        if self._bare_calls is not None:
            yield from self._bare_call(self._bare_calls)
        yield from self._answer()

    def _begins(self, mark: str) -> Reading[bool]:
        """Whether the reply begins with this mark, which is consumed then."""
        place = self._source.keep()
        try:
            yield from skip_blanks(self._source)
            yield from expect(self._source, mark)
        except Mismatch:
            self._source.again(place)
            return False
        self._source.forget(place)
        return True

    # ---- reasoning -----------------------------------------------------------------------------------------

    def _think(self, reasoning: ThinkingMarks) -> Reading[None]:
        """Reasoning through its end, or that of the reply. A call that turns out to be the reply's is left to be read."""
        self._thinking = True
        opener = () if self._calls is None else (self._calls.opener,)
        while True:
            mark = self._take(self._thought, (reasoning.end, *opener))
            if mark == reasoning.end:
                break
            if mark:
                if (yield from self._called_within(mark, reasoning.end)):
                    self.reasoned = self._source.number
                    self._thought.drop()
                    return
            elif self._source.ended:
                self._rest(self._thought)
                return
            else:
                yield
        self._thought.drop()
        self._prose.begin()
        self._thinking = False

    def _called_within(self, opener: str, end: str) -> Reading[bool]:
        """Whether the reply ends with a call in its reasoning. All is held until that is certain, and read again."""
        place = self._source.keep(opener)
        called = (yield from self._header()) is not None
        if called:
            called = yield from self._never(end)
        self._source.again(place)
        if not called:
            # The opener is the reasoning's text; what follows is read on.
            self._thought.put(self._source.skip(len(opener)), self._source.number - len(opener))
        return called

    def _never(self, mark: str) -> Reading[bool]:
        """Whether the reply ends without this mark."""
        while not self._source.take((mark,))[1]:
            if self._source.ended:
                return True
            yield
        return False

    # ---- the answer ----------------------------------------------------------------------------------------

    def _answer(self) -> Reading[None]:
        """Text and calls, to the reply's end."""
        reasoning = self._reasoning if self._reasoning is not None and self._reasoning.again else None
        opener = () if self._calls is None else (self._calls.opener,)
        start = () if reasoning is None else (reasoning.start,)
        while True:
            mark = self._take(self._prose, (*opener, *start))
            if mark in opener and self._calls is not None:
                yield from self._call(self._calls, mark)
            elif mark and reasoning is not None:
                self._prose.drop()
                self._thought.begin()
                yield from self._think(reasoning)
            elif self._source.ended:
                self._rest(self._prose)
                return
            else:
                yield

    def _call(self, notation: CallNotation, opener: str) -> Reading[None]:
        """A call, or text that begins as one does."""
        place = self._source.keep(opener)
        try:
            header = yield from notation.header(self._source, self._offered)
        except Unoffered:
            self._source.again(place)
            yield from self._quote(notation.closer)
        except Mismatch:
            self._source.again(place)
            self._prose.put(self._source.skip(len(opener)), self._source.number - len(opener))
        else:
            self._source.forget(place)
            yield from self._arguments(notation, header)

    def _bare_call(self, notation: CallNotation) -> Reading[None]:
        """A reply that is a call from its first character on."""
        place = self._source.keep()
        try:
            yield from skip_blanks(self._source)
            header = yield from notation.header(self._source, self._offered)
        except Mismatch:
            self._source.again(place)
            return
        self._source.forget(place)
        yield from self._arguments(notation, header)

    def _arguments(self, notation: CallNotation, header: Header) -> Reading[None]:
        broken = False
        self._pieces.begin_call(header.name)
        try:
            yield from notation.arguments(self._source, header, self._offered, self._pieces)
        except Mismatch:
            broken = True
        self._pieces.end_call(broken=broken)
        if broken:
            yield from self._skip(notation.closer)
        self._prose.call()

    def _quote(self, closer: str) -> Reading[None]:
        """Text through the closer, whatever stands in it."""
        while True:
            mark = self._take(self._prose, (closer,))
            if mark or self._source.ended:
                self._prose.put(mark, self._source.number - len(mark))
                return
            yield

    def _skip(self, closer: str) -> Reading[None]:
        """The rest of a call that broke, or of the reply, is neither call nor text."""
        while not self._source.take((closer,) if closer else ())[1]:
            if self._source.ended:
                self._source.rest()
                return
            yield

    # ---- steps ---------------------------------------------------------------------------------------------

    def _header(self) -> Reading[Header | None]:
        """The header of a call, or None."""
        if self._calls is None:
            return None
        try:
            return (yield from self._calls.header(self._source, self._offered))
        except Mismatch:
            return None

    def _take(self, flow: Flow, marks: tuple[str, ...]) -> str:
        """The text before the first of these marks goes on; the mark, or nothing when it is not there yet."""
        number = self._source.number
        text, mark = self._source.take(marks)
        flow.put(text, number)
        return mark

    def _rest(self, flow: Flow) -> None:
        """All that is left belongs to the text, now that the reply is over."""
        number = self._source.number
        flow.put(self._source.rest(), number)
        flow.flush()

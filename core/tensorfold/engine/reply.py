"""One reply's tokens on their way to events: characters, stop strings, log-probabilities, the family's parser."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence

from tensorfold.contracts.chat import CallPiece, EndsReasoningLate, ReplyParser, ReplyPiece, TextPiece, ThinkingPiece
from tensorfold.engine.detokenize import Detokenizer
from tensorfold.engine.stops import StopScanner
from tensorfold.ir import Event, TextDelta, ThinkingDelta, TokenInfo, ToolCallDelta

__all__ = ["ReplyText"]


class ReplyText:
    """The text side of one choice; a function of the tokens fed, one after the other."""

    def __init__(
        self,
        choice: int,
        detokenizer: Detokenizer,
        stops: StopScanner,
        parser: ReplyParser,
        call_id: Callable[[int], str],
        *,
        counted: bool = False,
    ) -> None:
        """`call_id` names a call by its index; `counted`: deltas tell how many tokens there are up to them."""
        self.reasoning_tokens = 0
        """Tokens that began or ended inside the reasoning, its markers included; behind `finish`, without those of a call
        that the reasoning ended in."""
        self.calls = 0
        """Tool calls begun."""
        self.latest = ""
        """What the latest token completed of the text."""
        self.broken = False
        """Whether one of them broke off: its arguments do not parse."""
        self._choice = choice
        self._detokenizer = detokenizer
        self._stops = stops
        self._scanning = not stops.idle
        self._parser = parser
        self._call_id = call_id
        self._counted = counted
        self._tokens = 0
        self._decoded = 0
        """Characters decoded."""
        self._released = 0
        """Of those, the ones that have left the stop scanner."""
        self._reasoning: list[int] = []
        """Of each token of the reasoning the number of the first character it has a part in."""
        self._infos: deque[tuple[int, TokenInfo]] = deque()
        """Tokens whose text has not left yet, each with the number of the first character it has a part in."""

    def feed(self, token: int, info: TokenInfo | None) -> tuple[list[Event], str | None]:
        """One more token (with its log-probability, if asked for): what there is to send, and the stop string met."""
        thinking = self._parser.thinking
        self._tokens += 1
        if info is not None and self._detokenizer.visible(token):
            self._infos.append((self._decoded, info))
        begin = self._decoded
        text = self.latest = self._detokenizer.feed(token)
        self._decoded += len(text)
        matched = None
        if not self._scanning:
            events = self._release(text)
        else:
            scan = self._stops.feed(text)
            events, matched = self._release(scan.text), scan.matched
        if thinking or self._parser.thinking:
            self.reasoning_tokens += 1
            self._reasoning.append(begin)
        return events, matched

    @property
    def whole(self) -> bool:
        """Whether the tokens so far end with a character's end."""
        return self._detokenizer.whole

    def count(self) -> None:
        """One more token that adds no text: an end token."""
        self._tokens += 1
        self.reasoning_tokens += self._parser.thinking

    def finish(self, *, matched: bool) -> list[Event]:
        """The reply has ended; what is held back belongs to it unless a stop string `matched`."""
        events: list[Event] = []
        if not matched:
            tail = self._detokenizer.finish()
            self._decoded += len(tail)
            text = self._stops.finish() + tail
            tokens = tuple(info for _, info in self._infos)
            self._infos.clear()
            if text or tokens:
                events += self._events(self._parser.feed(text, tokens))
        events += self._events(self._parser.finish())
        if isinstance(self._parser, EndsReasoningLate) and self._parser.reasoned is not None:
            self.reasoning_tokens = bisect_left(self._reasoning, self._parser.reasoned)
        return events

    def _release(self, text: str) -> list[Event]:
        if not text:
            return []
        self._released += len(text)
        if not self._infos:
            return self._events(self._parser.feed(text, ()))
        tokens: list[TokenInfo] = []
        while self._infos and self._infos[0][0] < self._released:
            tokens.append(self._infos.popleft()[1])
        return self._events(self._parser.feed(text, tuple(tokens)))

    def _events(self, pieces: Sequence[ReplyPiece]) -> list[Event]:
        if len(pieces) == 1:
            event = self._event(pieces[0])
            return [] if event is None else [event]
        return [event for piece in pieces if (event := self._event(piece)) is not None]

    def _event(self, piece: ReplyPiece) -> Event | None:
        count = self._tokens if self._counted else None
        match piece:
            case TextPiece(text, tokens):
                return TextDelta(self._choice, text, tokens, count)
            case ThinkingPiece(text, tokens):
                return ThinkingDelta(self._choice, text, tokens, count)
            case CallPiece(name=None, arguments="", broken=broken):
                self.broken |= broken
                return None
            case CallPiece(index, name, arguments):
                self.broken |= piece.broken
                if name is not None:
                    self.calls += 1
                named = None if name is None else self._call_id(index)
                return ToolCallDelta(self._choice, index, named, name, arguments, count)

"""What a reply's parser gives, put together: neighbouring pieces joined, each with the tokens that begin in it."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterable
from typing import Literal, TypeAlias

from tensorfold.chat.replies.source import MAX_BLANKS
from tensorfold.contracts.chat import CallPiece, ReplyPiece, TextPiece, ThinkingPiece
from tensorfold.ir import TokenInfo

__all__ = ["Flow", "PieceWriter"]


class PieceWriter:
    """Collects pieces until they are taken.

    With `single`, the first whole call is given when it has ended, and no other one.
    """

    def __init__(self, *, single: bool) -> None:
        self._tokens = _Tokens()
        self._pieces: list[ReplyPiece] = []
        self._single = single
        self._calls = 0
        self._call: tuple[str, list[str]] | None = None
        """With `single`: the name and the arguments of the call that is written."""
        self._spoilt: tuple[str, str] | None = None
        """With `single`: the first call that broke, in case no other one is whole."""
        self._given = False

    def expect(self, tokens: tuple[TokenInfo, ...]) -> None:
        """The tokens that begin in the text that is fed next."""
        self._tokens.add(tokens)

    def take(self) -> list[ReplyPiece]:
        """All pieces since the last time."""
        pieces, self._pieces = self._pieces, []
        return pieces

    # ---- text ----------------------------------------------------------------------------------------------

    def text(self, kind: Literal["text", "thinking"], text: str, number: int) -> None:
        """More text; `number` is that of its first character in the reply."""
        if not text:
            return
        tokens = self._tokens.within(number, number + len(text))
        make = TextPiece if kind == "text" else ThinkingPiece
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, make):
            self._pieces[-1] = make(last.text + text, last.tokens + tokens)
        else:
            self._pieces.append(make(text, tokens))

    # ---- calls ---------------------------------------------------------------------------------------------

    def begin_call(self, name: str) -> None:
        """A call's name."""
        self._calls += 1
        if self._single:
            self._call = (name, [])
        else:
            self._pieces.append(CallPiece(self._calls - 1, name, ""))

    def write(self, text: str) -> None:
        """More of the call's arguments."""
        if not text:
            return
        if self._call is not None:
            self._call[1].append(text)
            return
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, CallPiece) and last.name is None:
            self._pieces[-1] = CallPiece(last.index, None, last.arguments + text)
        else:
            self._pieces.append(CallPiece(self._calls - 1, None, text))

    def end_call(self, *, broken: bool) -> None:
        """The call is whole, or breaks off here."""
        if self._call is not None:
            name, parts = self._call
            self._call = None
            if broken:
                self._spoilt = self._spoilt or (name, "".join(parts))
            elif not self._given:
                self._give(name, "".join(parts))
        elif broken:
            self._pieces.append(CallPiece(self._calls - 1, None, "", broken=True))

    def finish(self) -> None:
        """The reply is over: a lone call that broke is given as far as it went."""
        if self._spoilt is not None and not self._given:
            self._give(*self._spoilt)
            self._pieces.append(CallPiece(0, None, "", broken=True))

    def _give(self, name: str, arguments: str) -> None:
        self._given = True
        self._pieces += [CallPiece(0, name, ""), CallPiece(0, None, arguments)]


class Flow:
    """Text of one kind, without the white space around it that belongs to the notation."""

    def __init__(self, pieces: PieceWriter, kind: Literal["text", "thinking"]) -> None:
        self._pieces = pieces
        self._kind: Literal["text", "thinking"] = kind
        self._leading = False
        self._behind_call = False
        self._held: list[_Run] = []
        """White space that waits for what follows. A call may stand between two of them."""

    def begin(self) -> None:
        """Behind an opening mark: blank lines that come next are left out."""
        self._leading = True
        self._held.clear()

    def put(self, text: str, number: int) -> None:
        """More text, `number` being that of its first character. White space at its end waits for what follows."""
        if not text:
            return
        if not (self._held or self._leading or text[-1].isspace()):
            # PERF: most pieces are such.
            self._behind_call = False
            self._pieces.text(self._kind, text, number)
            return
        runs = [*self._held, (text, number)]
        if len(runs) > 1:
            text = "".join(run for run, _ in runs)
        start, end = 0, len(text.rstrip())
        if self._leading:
            start = _behind_last_line(text, len(text) - len(text.lstrip()))
            end = max(start, end)
            self._leading = start == end
        self._behind_call = self._behind_call and start == end
        if not self._leading:
            # A long run of white space is text, all but its end.
            end = max(end, len(text) - MAX_BLANKS)
        self._write(_within(runs, start, end))
        self._held = _within(runs, end, len(text))

    def drop(self) -> None:
        """A mark follows: the white space before it is left out."""
        self._held.clear()

    def call(self) -> None:
        """A call stood here: the white space around it is left out, unless text follows."""
        self._behind_call = True

    def flush(self) -> None:
        """The reply is over: white space at its end belongs to the text."""
        if not (self._leading or self._behind_call):
            self._write(self._held)
        self._held.clear()

    def _write(self, runs: Iterable[_Run]) -> None:
        for text, number in runs:
            self._pieces.text(self._kind, text, number)


_Run: TypeAlias = tuple[str, int]
"""Text, and the number of its first character in the reply."""


def _within(runs: Iterable[_Run], begin: int, end: int) -> list[_Run]:
    """What stands from `begin` to `end`, in characters of all runs together."""
    found: list[_Run] = []
    at = 0
    for text, number in runs:
        first, last = max(begin - at, 0), min(end - at, len(text))
        if first < last:
            found.append((text[first:last], number + first))
        at += len(text)
    return found


def _behind_last_line(text: str, blanks: int) -> int:
    """Where the last line begins of those that the first so many characters begin."""
    return text.rfind("\n", 0, blanks) + 1


class _Tokens:
    """Tokens in order, each with the number of the first character that it has a part in."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, TokenInfo]] = deque()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoded = 0

    def add(self, tokens: tuple[TokenInfo, ...]) -> None:
        for token in tokens:
            self._waiting.append((self._decoded, token))
            self._decoded += len(self._decoder.decode(token.data))

    def within(self, begin: int, end: int) -> tuple[TokenInfo, ...]:
        """Those that begin here; those before were marks, or left out."""
        found: list[TokenInfo] = []
        while self._waiting and self._waiting[0][0] < end:
            number, token = self._waiting.popleft()
            if number >= begin:
                found.append(token)
        return tuple(found)

"""Replies fed to a format's parser in pieces of every size; for tests of formats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tensorfold.contracts.chat import CallPiece, ChatFormat, ReplyPiece, TextPiece, ThinkingPiece
from tensorfold.ir import JSON, Chat, Message, Request, Text, Tool, ToolChoice

__all__ = ["Parsed", "cuts", "parsed", "request_with"]


@dataclass(slots=True)
class Parsed:
    """What a reply was found to be."""

    content: str = ""
    thinking: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Names, and arguments as they were written."""
    broken: bool = False
    pieces: list[ReplyPiece] = field(default_factory=list[ReplyPiece])
    """All of them, as they came."""

    def add(self, piece: ReplyPiece) -> None:
        """One piece more, which has to keep to the contract."""
        self.pieces.append(piece)
        match piece:
            case TextPiece(text):
                self.content += text
            case ThinkingPiece(text):
                self.thinking += text
            case CallPiece(index, str() as name):
                assert index == len(self.calls), "calls are numbered from 0, and a name comes once"
                self.calls.append((name, piece.arguments))
            case CallPiece(index):
                assert index == len(self.calls) - 1, "arguments belong to the latest call"
                name, arguments = self.calls[index]
                self.calls[index] = (name, arguments + piece.arguments)
                self.broken |= piece.broken

    @property
    def arguments(self) -> list[tuple[str, JSON]]:
        """Names and parsed arguments; the text itself where it does not parse."""
        return [(name, _parsed(text)) for name, text in self.calls]


def _parsed(text: str) -> JSON:
    try:
        value: JSON = json.loads(text)
    except ValueError:
        return text
    return value


def request_with(tools: Iterable[Tool], *, choice: ToolChoice | None = None) -> Request:
    """A chat that offers these tools."""
    chat = Chat((Message("user", (Text("x"),)),), tools=tuple(tools))
    return Request(id="r", prompt=chat, tool_choice=choice or ToolChoice())


def parsed(format: ChatFormat, request: Request, prompt: str, parts: Iterable[str]) -> Parsed:
    """A whole reply, fed in these parts."""
    parser = format.parser(request, prompt)
    found = Parsed()
    for part in parts:
        for piece in parser.feed(part, ()):
            found.add(piece)
    for piece in parser.finish():
        found.add(piece)
    return found


def cuts(text: str) -> Iterator[list[str]]:
    """The text whole, a character at a time, a few at a time, and cut in two at every place."""
    yield [text]
    for size in (1, 3, 8):
        yield [text[at : at + size] for at in range(0, len(text), size)]
    for at in range(1, len(text)):
        yield [text[:at], text[at:]]

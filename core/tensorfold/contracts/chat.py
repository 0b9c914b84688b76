"""How a family converses: variables for its template, and the parser of its replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from tensorfold.ir import JSON, Chat, Request, TokenInfo

__all__ = [
    "CallFrame",
    "CallMarks",
    "CallPiece",
    "ChatFormat",
    "ChatTemplates",
    "EndsReasoningLate",
    "MarkedFormat",
    "PieceEncoder",
    "ReplyMarks",
    "ReplyParser",
    "ReplyPiece",
    "TextPiece",
    "ThinkingMarks",
    "ThinkingPiece",
    "Tokenizer",
]


class Tokenizer(Protocol):
    """Text to ids and ids to bytes. Safe to use from several threads."""

    @property
    def size(self) -> int:
        """Ids from 0 to size - 1 have a spelling."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool, parse_special: bool) -> list[int]:
        """Ids of a text; `parse_special` reads control-token spellings as the tokens, else as ordinary text."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token adds to a text; a control token's spelling."""
        ...

    def is_special(self, token: int) -> bool:
        """Whether the token is a control token, which does not appear in ordinary replies."""
        ...

    def token_id(self, spelling: str) -> int | None:
        """The id of a token that is spelled exactly so, or None."""
        ...


@runtime_checkable
class PieceEncoder(Protocol):
    """What a tokenizer may offer besides: text and control tokens that stand in one text."""

    def encode_pieces(self, pieces: Sequence[str | int]) -> list[int]:
        """Ids of a text in which each number is a control token and each string is ordinary text, whatever it spells.

        Without control-token spellings in the strings, equal to `encode` of the spelled-out whole with `parse_special`.
        """
        ...


@dataclass(frozen=True, slots=True)
class ChatTemplates:
    """A checkpoint's chat templates, in Jinja source."""

    default: str | None = None
    """None: the checkpoint has no template and cannot chat."""
    named: Mapping[str, str] = field(default_factory=dict[str, str])
    """The others, by name; `tool_use` is taken when tools are offered."""
    special_tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    """The template's variables for control tokens (`bos_token`, ...), by spelling."""


class TextPiece(msgspec.Struct, frozen=True):
    """Answer text."""

    text: str
    tokens: tuple[TokenInfo, ...] = ()


class ThinkingPiece(msgspec.Struct, frozen=True):
    """Reasoning text."""

    text: str
    tokens: tuple[TokenInfo, ...] = ()


class CallPiece(msgspec.Struct, frozen=True):
    """Part of a tool call: the name with the first piece, then more of its arguments."""

    index: int
    name: str | None
    arguments: str
    broken: bool = False
    """The reply breaks off within this call, or goes wrong: its arguments do not parse."""


ReplyPiece: TypeAlias = TextPiece | ThinkingPiece | CallPiece


class ReplyParser(Protocol):
    """Splits one reply into text, reasoning and calls while it is written. One parser a choice; not shared."""

    def feed(self, text: str, tokens: tuple[TokenInfo, ...]) -> Sequence[ReplyPiece]:
        """More of the reply's text, in pieces of any size: the pieces joined do not depend on how it was cut."""
        ...

    def finish(self) -> Sequence[ReplyPiece]:
        """The reply has ended: what was held back."""
        ...

    @property
    def thinking(self) -> bool:
        """Whether the text so far ends inside the reasoning."""
        ...


@runtime_checkable
class EndsReasoningLate(Protocol):
    """A reply parser that may learn only from the reply's end where its reasoning ended: a call stood there."""

    @property
    def reasoned(self) -> int | None:
        """How many characters of the reply came before that call; None: there is no such call."""
        ...


@dataclass(frozen=True, slots=True)
class ThinkingMarks:
    """The marks around reasoning."""

    start: str = "<think>"
    end: str = "</think>"
    again: bool = False
    """Whether reasoning may begin again behind text: where the mark is a control token, which no text spells. Else only
    the prompt, or the very beginning of a reply, opens it."""

    def opened_by(self, prompt: str) -> bool:
        """Whether a prompt ends with the start: the reply then begins within the reasoning."""
        return prompt.rstrip().endswith(self.start)

    def closed_by(self, prompt: str) -> bool:
        """Whether a prompt ends with the end: the reply is to have no reasoning."""
        return prompt.rstrip().endswith(self.end)


@dataclass(frozen=True, slots=True)
class CallMarks:
    """The marks around a call."""

    opener: str
    closer: str


@dataclass(frozen=True, slots=True)
class CallFrame:
    """What is written around a call's name."""

    before: str
    """The opener, and all that stands ahead of the name."""
    arguments: str
    """What stands between the name and the first argument's key."""
    nothing: str
    """What stands behind the name of a call without arguments, through the closer."""


@dataclass(frozen=True, slots=True)
class ReplyMarks:
    """What replies are marked up with."""

    thinking: ThinkingMarks | None = None
    call: CallMarks | None = None
    frame: CallFrame | None = None
    """Of calls, for templates that render none."""
    in_text: frozenset[str] = frozenset()
    """Spellings that stay in the text, for the parser to read, though they may be control tokens."""
    ends: frozenset[str] = frozenset()
    """Spellings of control tokens that end a turn, besides those that the checkpoint names."""


@runtime_checkable
class MarkedFormat(Protocol):
    """What a format may offer besides: its marks, for what the engine does to replies; and a word on its templates."""

    @property
    def marks(self) -> ReplyMarks:
        """The marks of its replies."""
        ...

    @property
    def thinks(self) -> bool:
        """Whether replies have reasoning when nothing is said about it."""
        ...

    def begins_call(self, request: Request, text: str) -> bool | None:
        """Whether the text behind a call's opener begins a call of an offered function; None: it may, once it goes on."""
        ...

    def amend(self, template: str) -> str:
        """The checkpoint's template, able to render what the family promises; as it is where nothing is missing."""
        ...


class ChatFormat(Protocol):
    """A checkpoint's conversation rules."""

    def template_kwargs(self, chat: Chat) -> Mapping[str, JSON]:
        """Variables for the template, from the request's own and the family's rules.

        Raises:
            Unsupported: a switch that the template cannot render.
        """
        ...

    def parser(self, request: Request, prompt_tail: str) -> ReplyParser:
        """A fresh parser; `prompt_tail` is the end of the rendered prompt, which may have opened the reasoning."""
        ...

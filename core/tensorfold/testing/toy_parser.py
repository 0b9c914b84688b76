"""A reply format for tests: `reasoning</think>text<call>arguments</call>text`, every marker in plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from tensorfold.contracts.chat import CallPiece, ReplyParser, ReplyPiece, TextPiece, ThinkingPiece
from tensorfold.ir import JSON, Chat, Request, TokenInfo

__all__ = ["ThinkingFormat", "ThinkingParser"]

_MARKERS = {"thinking": "</think>", "text": "<call>", "call": "</call>"}
"""What ends each part."""


class ThinkingParser:
    """Implements `contracts.chat.ReplyParser`. Calls are all of the function `f`."""

    def __init__(self, *, thinking: bool) -> None:
        """`thinking`: the reply begins inside the reasoning."""
        self._part: Literal["thinking", "text", "call"] = "thinking" if thinking else "text"
        self._held = ""
        self._calls = 0
        self._tokens: tuple[TokenInfo, ...] = ()

    @property
    def thinking(self) -> bool:
        """Whether the reasoning is still open."""
        return self._part == "thinking"

    def feed(self, text: str, tokens: tuple[TokenInfo, ...]) -> Sequence[ReplyPiece]:
        """Pieces of the open part, and of the parts that the text opens."""
        self._held += text
        self._tokens += tokens
        pieces: list[ReplyPiece] = []
        while (marker := _MARKERS[self._part]) in self._held:
            before, _, self._held = self._held.partition(marker)
            pieces += self._piece(before)
            pieces += self._next_part()
        keep = next((size for size in range(len(marker) - 1, 0, -1) if self._held.endswith(marker[:size])), 0)
        ready, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return [*pieces, *self._piece(ready)]

    def finish(self) -> Sequence[ReplyPiece]:
        """What was held back."""
        rest, self._held = self._held, ""
        return self._piece(rest)

    def _next_part(self) -> Sequence[ReplyPiece]:
        if self._part != "text":
            self._part = "text"
            return ()
        self._part = "call"
        self._calls += 1
        return (CallPiece(self._calls - 1, "f", ""),)

    def _piece(self, text: str) -> Sequence[ReplyPiece]:
        if not text:
            return ()
        tokens, self._tokens = self._tokens, ()
        match self._part:
            case "thinking":
                return (ThinkingPiece(text, tokens),)
            case "text":
                return (TextPiece(text, tokens),)
            case "call":
                return (CallPiece(self._calls - 1, None, text),)


class ThinkingFormat:
    """Implements `contracts.chat.ChatFormat`: replies begin inside the reasoning when the prompt ends with `<think>`."""

    def template_kwargs(self, chat: Chat) -> Mapping[str, JSON]:
        """None."""
        return {}

    def parser(self, request: Request, prompt_tail: str) -> ReplyParser:
        """Looks at the prompt's end."""
        return ThinkingParser(thinking=prompt_tail.rstrip().endswith("<think>"))

"""The format of checkpoints without markup: a reply is all text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorfold.contracts.chat import ReplyPiece, TextPiece
from tensorfold.ir import JSON, Chat, Request, TokenInfo

__all__ = ["PlainFormat", "PlainParser"]


class PlainFormat:
    """Templates get the request's own variables, and an effort that was asked for."""

    def template_kwargs(self, chat: Chat) -> Mapping[str, JSON]:
        """The request's variables."""
        effort: dict[str, JSON] = {} if chat.reasoning_effort is None else {"reasoning_effort": chat.reasoning_effort}
        return {**effort, **chat.template_kwargs}

    def parser(self, request: Request, prompt_tail: str) -> PlainParser:
        """A parser that splits nothing."""
        return PlainParser()


class PlainParser:
    """Hands text on as it comes."""

    def feed(self, text: str, tokens: tuple[TokenInfo, ...]) -> Sequence[ReplyPiece]:
        """The text itself."""
        return (TextPiece(text, tokens),) if text or tokens else ()

    def finish(self) -> Sequence[ReplyPiece]:
        """Nothing was held back."""
        return ()

    @property
    def thinking(self) -> bool:
        """Never."""
        return False

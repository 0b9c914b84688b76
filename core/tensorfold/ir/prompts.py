"""What a reply goes on from: a conversation, a text, or token ids."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tensorfold.errors import InvalidRequest
from tensorfold.ir.json_value import JSON
from tensorfold.ir.messages import Message, Tool

__all__ = ["Chat", "Prompt", "TextPrompt", "TokensPrompt"]


class Chat(msgspec.Struct, frozen=True, tag="chat"):
    """A conversation, to be rendered through the checkpoint's template."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    template_kwargs: dict[str, JSON] = {}
    """Extra variables for the template (`enable_thinking`, ...)."""
    reasoning_effort: str | None = None
    """none, minimal, low, medium, high, xhigh or max; None: the server's or the template's default."""
    continue_final_message: bool = False
    """Continue the last (assistant) message instead of beginning a new one."""
    continued_part: Literal["thinking", "text"] | None = None
    """Which part of it is continued; None: its reasoning if it has some and no text, else its text."""
    add_generation_prompt: bool = True
    """Begin the answer; false only shows how the conversation so far reads."""

    def __post_init__(self) -> None:
        if not self.messages:
            raise InvalidRequest("messages must hold at least one message", param="messages")


class TextPrompt(msgspec.Struct, frozen=True, tag="text_prompt"):
    """Raw text, without a template."""

    text: str
    add_special_tokens: bool = False
    """Whether the tokenizer adds its own (BOS, ...)."""


class TokensPrompt(msgspec.Struct, frozen=True, tag="tokens_prompt"):
    """Token ids, run as given."""

    ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(token < 0 for token in self.ids):
            raise InvalidRequest("prompt holds a negative token id", param="prompt")


Prompt: TypeAlias = Chat | TextPrompt | TokensPrompt

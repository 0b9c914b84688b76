"""What a conversation is made of, and the functions that the model may call."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tensorfold.ir.json_value import JSON

__all__ = ["Image", "Message", "Part", "Role", "Text", "Thinking", "Tool", "ToolCall", "ToolResult"]

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Plain text."""

    text: str


class Thinking(msgspec.Struct, frozen=True, tag="thinking"):
    """An earlier turn's reasoning."""

    text: str


class Image(msgspec.Struct, frozen=True, tag="image"):
    """A picture, not yet fetched or decoded."""

    url: str
    """A data URL or an http(s) URL."""
    detail: str | None = None
    """The client's wish for resolution (`low`, `high`, `auto`), if any."""


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call"):
    """A call that the assistant made in an earlier turn."""

    id: str
    """The client's id of the call; may be empty in histories that have none."""
    name: str
    arguments: str
    """The text that the model wrote, which need not parse; templates get a mapping."""


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result"):
    """What a call gave back."""

    call_id: str
    """The id of the call; may be empty in histories that have none."""
    parts: tuple[Text | Image, ...]
    is_error: bool = False


Part: TypeAlias = Text | Thinking | Image | ToolCall | ToolResult


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: Role
    parts: tuple[Part, ...]
    name: str | None = None
    """The participant's name, where the API has one."""


class Tool(msgspec.Struct, frozen=True):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, JSON] | None = None
    """The JSON schema of the arguments; None: no arguments declared."""
    strict: bool = False

"""Content blocks as Anthropic writes them, to the messages of the IR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from tensorfold.errors import DecodeError, Unsupported
from tensorfold.ir import JSON, Image, Message, Part, Text, Thinking, ToolCall, ToolResult

__all__ = ["Content", "WireBlock", "WireMessage", "read_conversation"]

_BILLING = "x-anthropic-billing-header:"
"""Begins a system block in which one agent counts its own requests: it differs each time and is not for the model."""


class WireSource(msgspec.Struct):
    """Where an image's data is."""

    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None


class WireInner(msgspec.Struct):
    """A block inside a tool result."""

    type: str
    text: str | None = None
    source: WireSource | None = None


class WireBlock(msgspec.Struct):
    """A block of any type that is read; others are refused by their type."""

    type: str
    text: str | None = None
    thinking: str | None = None
    source: WireSource | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, JSON] | None = None
    tool_use_id: str | None = None
    content: str | list[WireInner] | None = None
    is_error: bool | None = None


Content: TypeAlias = str | list[WireBlock]


class WireMessage(msgspec.Struct):
    """A turn; system text may stand between the turns too."""

    role: str
    content: Content
    clear_at: str | None = None
    """Would end the message's life with the turn."""
    output_config: dict[str, JSON] | None = None
    """Would change the output from here on."""


def read_conversation(system: Content | None, messages: list[WireMessage]) -> tuple[Message, ...]:
    """The conversation. A turn that brings tool results becomes a message for each of them, then one for its text.

    Raises:
        DecodeError: a role or a field is wrong or missing; names the place.
        Unsupported: a block, a turn-scoped system text or a change of the output that is not served.
    """
    read: list[Message] = []
    parts = _system(system, "system") if system else ()
    if parts:
        read.append(Message("system", parts))
    for index, message in enumerate(messages):
        read.extend(_messages(message, f"messages[{index}]"))
    return tuple(read)


def _messages(message: WireMessage, at: str) -> Iterator[Message]:
    _check_scope(message, at)
    match message.role:
        case "user":
            yield from _user(message.content, f"{at}.content")
        case "assistant":
            yield Message("assistant", _assistant(message.content, f"{at}.content"))
        case "system":
            yield Message("system", _system(message.content, f"{at}.content"))
        case role:
            raise DecodeError(f"{at}.role is {role[:40]!r}, and must be user, assistant or system", param=f"{at}.role")


def _check_scope(message: WireMessage, at: str) -> None:
    if message.clear_at is not None:
        raise Unsupported(
            f"{at}.clear_at: a message that holds for one turn is not served; send it without clear_at",
            param=f"{at}.clear_at",
        )
    if message.output_config is not None:
        raise Unsupported(
            f"{at}.output_config: the output is configured for the whole request, in its own output_config",
            param=f"{at}.output_config",
        )


def _system(content: Content, at: str) -> tuple[Text, ...]:
    if isinstance(content, str):
        return (Text(content),)
    texts = [_text(block, f"{at}[{index}]") for index, block in enumerate(content)]
    return tuple(text for text in texts if not text.text.startswith(_BILLING))


def _text(block: WireBlock, at: str) -> Text:
    if block.type != "text":
        raise _unread(block.type, at, "text alone")
    return Text(_needed(block.text, f"{at}.text"))


def _user(content: Content, at: str) -> Iterator[Message]:
    if isinstance(content, str):
        yield Message("user", (Text(content),))
        return
    results: list[ToolResult] = []
    parts: list[Part] = []
    for index, block in enumerate(content):
        place = f"{at}[{index}]"
        match block.type:
            case "tool_result":
                results.append(_result(block, place))
            case "text":
                parts.append(Text(_needed(block.text, f"{place}.text")))
            case "image":
                parts.append(_image(block.source, place))
            case other:
                raise _unread(other, place, "text, image and tool_result")
    yield from (Message("tool", (result,)) for result in results)
    if parts or not results:
        yield Message("user", tuple(parts))


def _result(block: WireBlock, at: str) -> ToolResult:
    call = _needed(block.tool_use_id, f"{at}.tool_use_id")
    parts: list[Text | Image] = []
    match block.content:
        case None:
            pass
        case str() as text:
            parts.append(Text(text))
        case inner:
            parts.extend(_inner(each, f"{at}.content[{index}]") for index, each in enumerate(inner))
    return ToolResult(call, tuple(parts), bool(block.is_error))


def _inner(block: WireInner, at: str) -> Text | Image:
    match block.type:
        case "text":
            return Text(_needed(block.text, f"{at}.text"))
        case "image":
            return _image(block.source, at)
        case other:
            raise _unread(other, at, "text and image")


def _assistant(content: Content, at: str) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(content),) if content else ()
    parts: list[Part] = []
    for index, block in enumerate(content):
        place = f"{at}[{index}]"
        match block.type:
            case "text":
                parts.append(Text(_needed(block.text, f"{place}.text")))
            case "thinking":
                parts.append(Thinking(_needed(block.thinking, f"{place}.thinking")))
            case "tool_use":
                name = _needed(block.name, f"{place}.name")
                arguments = msgspec.json.encode(block.input or {}).decode()
                parts.append(ToolCall(_needed(block.id, f"{place}.id"), name, arguments))
            case "redacted_thinking":
                raise Unsupported(f"{place}: redacted thinking cannot be read; leave the block out", param=place)
            case other:
                raise _unread(other, place, "text, thinking and tool_use")
    return tuple(parts)


def _image(source: WireSource | None, at: str) -> Image:
    match source:
        case WireSource(type="base64", media_type=str() as media, data=str() as data):
            return Image(f"data:{media};base64,{data}")
        case WireSource(type="url", url=str() as url):
            return Image(url)
        case WireSource(type="base64" | "url"):
            raise DecodeError(f"{at}.source lacks its data", param=f"{at}.source")
        case WireSource(type=other):
            raise Unsupported(f"{at}.source is of type {other[:40]!r}; send base64 or url", param=f"{at}.source")
        case None:
            raise DecodeError(f"{at}.source is missing", param=f"{at}.source")


def _needed(value: str | None, at: str) -> str:
    if value is None:
        raise DecodeError(f"{at} is missing", param=at)
    return value


def _unread(type: str, at: str, read: str) -> Unsupported:
    return Unsupported(f"{at} is of type {type[:40]!r}, and here {read} can be read", param=f"{at}.type")

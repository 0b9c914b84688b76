"""Input items of Responses, to the messages of the IR, as a chat client would send them."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tensorfold.errors import DecodeError, Unsupported
from tensorfold.ir import Image, Message, Part, Text, Thinking, ToolCall, ToolResult

__all__ = ["WireInput", "WireItem", "read_input"]


class WirePart(msgspec.Struct):
    """One part of a content list; parts of other types have other fields, and are refused by their type."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None


class WireItem(msgspec.Struct):
    """An item of any type; one without a type is a message. What is not read (`status`, `phase`) is left out here."""

    type: str | None = None
    id: str | None = None
    role: str | None = None
    content: str | list[WirePart] | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    output: str | list[WirePart] | None = None
    encrypted_content: str | None = None


WireInput: TypeAlias = str | list[WireItem]

Parts: TypeAlias = tuple[Part, ...]


def read_input(given: WireInput) -> tuple[Message, ...]:
    """The messages. Reasoning, text and calls that stand side by side are one turn of the assistant.

    Raises:
        DecodeError: a field is missing or a role unknown; names the place.
        Unsupported: an item or a part of a type that is not read.
    """
    if isinstance(given, str):
        return (Message("user", (Text(given),)),)
    turns = _Turns()
    for index, item in enumerate(given):
        _take(turns, item, f"input[{index}]")
    return turns.messages()


class _Turns:
    """The messages so far, and the assistant's turn that is still open."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._parts: list[Part] = []
        self._open = False

    def add(self, message: Message) -> None:
        """A message that is not the assistant's."""
        self._close()
        self._messages.append(message)

    def think(self, text: str) -> None:
        """Reasoning stands at the start of a turn."""
        if any(not isinstance(part, Thinking) for part in self._parts):
            self._close()
        self._join((Thinking(text),))

    def say(self, texts: tuple[Text, ...]) -> None:
        """A turn has one message, before its calls."""
        if any(not isinstance(part, Thinking) for part in self._parts):
            self._close()
        self._join(tuple(text for text in texts if text.text))

    def call(self, call: ToolCall) -> None:
        """Calls end a turn."""
        self._join((call,))

    def messages(self) -> tuple[Message, ...]:
        """All of them."""
        self._close()
        return tuple(self._messages)

    def _join(self, parts: Parts) -> None:
        self._open = True
        self._parts.extend(parts)

    def _close(self) -> None:
        if self._open:
            self._messages.append(Message("assistant", tuple(self._parts)))
        self._open, self._parts = False, []


def _take(turns: _Turns, item: WireItem, at: str) -> None:
    match item.type:
        case None | "message":
            _message(turns, item, at)
        case "reasoning":
            if item.encrypted_content is not None:
                raise Unsupported(
                    f"{at}.encrypted_content: encrypted reasoning cannot be read here; send null and the plain content",
                    param=f"{at}.encrypted_content",
                )
            if text := "".join(text.text for text in _texts(item.content, f"{at}.content", ("reasoning_text", "text"))):
                turns.think(text)
        case "function_call":
            if item.namespace is not None:
                raise Unsupported(f"{at}.namespace: tools have no namespaces here", param=f"{at}.namespace")
            call = _needed(item.call_id, f"{at}.call_id"), _needed(item.name, f"{at}.name")
            turns.call(ToolCall(*call, _needed(item.arguments, f"{at}.arguments")))
        case "function_call_output":
            call_id = _needed(item.call_id, f"{at}.call_id")
            turns.add(Message("tool", (ToolResult(call_id, _contents(item.output, f"{at}.output")),)))
        case other:
            raise Unsupported(
                f"{at} is of type {other[:40]!r}, and message, reasoning, function_call and function_call_output are"
                " read here",
                param=f"{at}.type",
            )


def _message(turns: _Turns, item: WireItem, at: str) -> None:
    if item.content is None:
        raise DecodeError(f"{at}.content is missing", param=f"{at}.content")
    match item.role:
        case "user" | "system" | "developer" as role:
            turns.add(Message(role, _contents(item.content, f"{at}.content")))
        case "assistant":
            turns.say(_texts(item.content, f"{at}.content", ("output_text", "input_text", "text", "refusal")))
        case None:
            raise DecodeError(f"{at}.role is missing", param=f"{at}.role")
        case role:
            raise DecodeError(
                f"{at}.role is {role[:40]!r}, and must be user, system, developer or assistant", param=f"{at}.role"
            )


def _texts(content: str | list[WirePart] | None, at: str, types: tuple[str, ...]) -> tuple[Text, ...]:
    if content is None or isinstance(content, str):
        return (Text(content),) if content else ()
    return tuple(_text(part, f"{at}[{index}]", types) for index, part in enumerate(content))


def _contents(content: str | list[WirePart] | None, at: str) -> tuple[Text | Image, ...]:
    """Text and images."""
    match content:
        case None:
            raise DecodeError(f"{at} is missing", param=at)
        case str() as text:
            return (Text(text),)
        case parts:
            return tuple(_content(part, f"{at}[{index}]") for index, part in enumerate(parts))


def _content(part: WirePart, at: str) -> Text | Image:
    match part:
        case WirePart(type="input_image", image_url=str() as url):
            return Image(url, part.detail)
        case WirePart(type="input_image"):
            raise Unsupported(f"{at}: an image is read from its image_url, and not from a file id", param=f"{at}.type")
        case _:
            return _text(part, at, ("input_text", "output_text", "text"))


def _text(part: WirePart, at: str, types: tuple[str, ...]) -> Text:
    if part.type not in types:
        raise Unsupported(f"{at} is of type {part.type[:40]!r}, which is not read here", param=f"{at}.type")
    field = "refusal" if part.type == "refusal" else "text"
    return Text(_needed(part.refusal if field == "refusal" else part.text, f"{at}.{field}"))


def _needed(value: str | None, at: str) -> str:
    if value is None:
        raise DecodeError(f"{at} is missing", param=at)
    return value

"""Chat messages as OpenAI writes them, to the messages of the IR."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tensorfold.errors import DecodeError, Unsupported
from tensorfold.ir import JSON, Message, Part, Role, Text, Thinking, ToolCall, ToolResult

__all__ = ["WireMessage", "read_messages"]


class WirePart(msgspec.Struct):
    """One part of a content list; parts of other types have other fields, and are refused by their type."""

    type: str
    text: str | None = None
    refusal: str | None = None


class WireFunction(msgspec.Struct):
    """A call's function. Arguments are the text that the model wrote; some clients send the parsed object back."""

    name: str
    arguments: str | dict[str, JSON] | None = None


class WireCall(msgspec.Struct):
    """An earlier call."""

    id: str | None = None
    type: str | None = None
    function: WireFunction | None = None


Content: TypeAlias = str | list[WirePart] | None


class WireMessage(msgspec.Struct):
    """A message of any role."""

    role: str
    content: Content = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[WireCall] | None = None
    tool_call_id: str | None = None
    function_call: WireFunction | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None
    """A turn's reasoning, under any of the three names; the first that is given counts."""
    audio: JSON = None


def read_messages(messages: list[WireMessage]) -> tuple[Message, ...]:
    """The conversation.

    Raises:
        DecodeError: a role is unknown, or a field is missing; names the place.
        Unsupported: a part that is not text.
    """
    return tuple(_message(message, f"messages[{index}]") for index, message in enumerate(messages))


def _message(message: WireMessage, at: str) -> Message:
    match message.role:
        case "system" | "developer" | "user" as role:
            return _plain(role, message, at)
        case "assistant":
            return Message("assistant", _assistant_parts(message, at), message.name)
        case "tool" | "function":
            result = ToolResult(message.tool_call_id or "", _texts(message.content, at))
            return Message("tool", (result,), message.name)
        case role:
            raise DecodeError(
                f"{at}.role is {role[:40]!r}, and must be system, developer, user, assistant, tool or function",
                param=f"{at}.role",
            )


def _plain(role: Role, message: WireMessage, at: str) -> Message:
    return Message(role, _texts(message.content, at), message.name)


def _assistant_parts(message: WireMessage, at: str) -> tuple[Part, ...]:
    if message.audio is not None:
        raise Unsupported(f"{at}.audio: this server reads text alone", param=f"{at}.audio")
    parts: list[Part] = []
    reasoning = message.reasoning_content or message.reasoning or message.thinking
    if reasoning:
        parts.append(Thinking(reasoning))
    # Null, empty and missing content say the same of a turn that only calls.
    parts.extend(text for text in _texts(message.content or None, at) if text.text)
    if message.refusal:
        parts.append(Text(message.refusal))
    for index, call in enumerate(message.tool_calls or ()):
        place = f"{at}.tool_calls[{index}]"
        if call.type not in (None, "function"):
            raise Unsupported(f"{place}.type is {call.type[:40]!r}, and must be function", param=f"{place}.type")
        if call.function is None:
            raise DecodeError(f"{place}.function is missing", param=f"{place}.function")
        parts.append(_call(call.id or "", call.function))
    if message.function_call is not None:
        parts.append(_call("", message.function_call))
    return tuple(parts)


def _call(id: str, function: WireFunction) -> ToolCall:
    arguments = function.arguments
    if isinstance(arguments, dict):
        arguments = msgspec.json.encode(arguments).decode()
    return ToolCall(id=id, name=function.name, arguments=arguments or "")


def _texts(content: Content, at: str) -> tuple[Text, ...]:
    match content:
        case None:
            return ()
        case str():
            return (Text(content),)
        case parts:
            return tuple(_text(part, f"{at}.content[{index}]") for index, part in enumerate(parts))


def _text(part: WirePart, at: str) -> Text:
    match part:
        case WirePart(type="text", text=str() as text) | WirePart(type="refusal", refusal=str() as text):
            return Text(text)
        case WirePart(type="text" | "refusal" as kind):
            raise DecodeError(f"{at}.{kind} is missing", param=f"{at}.{kind}")
        case WirePart(type=kind):
            raise Unsupported(f"{at} is of type {kind[:40]!r}, and this server reads text alone", param=f"{at}.type")

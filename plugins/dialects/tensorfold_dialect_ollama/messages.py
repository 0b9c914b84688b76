"""Messages as Ollama writes them, to those of the IR."""

from __future__ import annotations

import msgspec

from tensorfold.errors import DecodeError
from tensorfold.ir import JSON, Image, Message, Part, Text, Thinking, ToolCall, ToolResult

__all__ = ["WireMessage", "images_of", "read_messages"]

_KINDS = {"/9j/": "jpeg", "iVBOR": "png", "R0lGOD": "gif", "UklGR": "webp", "Qk0": "bmp"}
"""How the base64 of an image begins, for it comes without its type."""


class WireFunction(msgspec.Struct):
    """A call's function; arguments are an object here."""

    name: str
    arguments: dict[str, JSON] | None = None


class WireCall(msgspec.Struct):
    """An earlier call; older clients give it no id."""

    function: WireFunction
    id: str | None = None


class WireMessage(msgspec.Struct):
    """A message of any role."""

    role: str
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[WireCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


def images_of(images: list[str] | None) -> tuple[Image, ...]:
    """Pictures, given as base64."""
    return tuple(_image(data) for data in images or ())


def _image(data: str) -> Image:
    kind = next((kind for start, kind in _KINDS.items() if data.startswith(start)), "png")
    return Image(f"data:image/{kind};base64,{data}")


def read_messages(messages: list[WireMessage]) -> tuple[Message, ...]:
    """The conversation. Calls without an id get one, and results find their call by the tool's name, in order.

    Raises:
        DecodeError: a role is unknown; names the place.
    """
    open_calls: list[ToolCall] = []
    read: list[Message] = []
    for index, message in enumerate(messages):
        match message.role:
            case "system" | "user" as role:
                parts: tuple[Part, ...] = (Text(message.content or ""), *images_of(message.images))
                read.append(Message(role, parts))
            case "assistant":
                calls = tuple(
                    _call(call, f"call_{index}_{number}") for number, call in enumerate(message.tool_calls or ())
                )
                open_calls.extend(calls)
                read.append(Message("assistant", (*_said(message), *calls)))
            case "tool":
                result = ToolResult(_answered(message, open_calls), (Text(message.content or ""),))
                read.append(Message("tool", (result,), message.tool_name))
            case role:
                at = f"messages[{index}].role"
                raise DecodeError(f"{at} is {role[:40]!r}, and must be system, user, assistant or tool", param=at)
    return tuple(read)


def _said(message: WireMessage) -> tuple[Part, ...]:
    thinking = (Thinking(message.thinking),) if message.thinking else ()
    return (*thinking, Text(message.content)) if message.content else thinking


def _call(call: WireCall, id: str) -> ToolCall:
    arguments = msgspec.json.encode(call.function.arguments or {}).decode()
    return ToolCall(call.id or id, call.function.name, arguments)


def _answered(message: WireMessage, open_calls: list[ToolCall]) -> str:
    """The id of the call that a result answers."""
    for call in open_calls:
        by_id = message.tool_call_id == call.id
        by_name = message.tool_call_id is None and message.tool_name in (None, call.name)
        if by_id or by_name:
            open_calls.remove(call)
            return call.id
    return message.tool_call_id or ""

"""The IR's messages and tools as the plain data that chat templates read.

Everything is built anew, so a template can change nothing of the caller's. Content is one text, calls have their
arguments as a mapping when they parse, results are messages of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from tensorfold.errors import Unsupported
from tensorfold.ir import JSON, Image, Message, Part, Text, Thinking, Tool, ToolCall, ToolResult

__all__ = ["THINKING_NAMES", "TemplateMessage", "template_messages", "template_tools"]

_ESCAPES: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
"""JSON's escapes: a surrogate pair, half of one, any other."""

THINKING_NAMES: Final = ("reasoning_content", "reasoning", "thinking")
"""The names under which templates look for a turn's reasoning; it stands under all of them."""

TemplateMessage: TypeAlias = dict[str, JSON]
"""One message in a template's eyes: `role`, `content`, and what else the role has."""


def template_messages(messages: Sequence[Message]) -> list[TemplateMessage]:
    """The messages as a template reads them, in order; a message's tool results come before its own text.

    Raises:
        Unsupported: a message holds an image.
    """
    names = {
        call.id: call.name for message in messages for call in message.parts if isinstance(call, ToolCall) and call.id
    }
    expanded: list[TemplateMessage] = []
    waiting: list[str] = []
    for message in messages:
        if message.role == "assistant":
            waiting = [part.name for part in message.parts if isinstance(part, ToolCall)]
        expanded += _expanded(message, names, waiting)
    return expanded


def template_tools(tools: Iterable[Tool]) -> list[JSON] | None:
    """The tools as JSON schemas of functions; None when there are none."""
    return [{"type": "function", "function": _function(tool)} for tool in tools] or None


def _expanded(message: Message, names: Mapping[str, str], waiting: list[str]) -> list[TemplateMessage]:
    """`names`: of calls by id; `waiting`: of the latest turn's calls that have no result yet, in order."""
    results = [_result(part, names, waiting) for part in message.parts if isinstance(part, ToolResult)]
    rest = [part for part in message.parts if not isinstance(part, ToolResult)]
    return results if results and not rest else [*results, _plain(message, rest)]


def _plain(message: Message, parts: Sequence[Part]) -> TemplateMessage:
    # Content is never null: templates that join it with text print `None` or raise.
    plain: TemplateMessage = {"role": message.role, "content": _text(parts)}
    if message.name is not None:
        plain["name"] = message.name
    thinking = "".join(part.text for part in parts if isinstance(part, Thinking))
    if thinking:
        plain |= dict.fromkeys(THINKING_NAMES, thinking)
    calls: list[JSON] = [_call(part) for part in parts if isinstance(part, ToolCall)]
    if calls:
        plain["tool_calls"] = calls
    return plain


def _result(result: ToolResult, names: Mapping[str, str], waiting: list[str]) -> TemplateMessage:
    plain: TemplateMessage = {"role": "tool", "content": _text(result.parts)}
    if result.call_id:
        plain["tool_call_id"] = result.call_id
    name = names.get(result.call_id)
    if name is None and not result.call_id and waiting:
        # Without an id, results come in the order of their calls.
        name = waiting[0]
    if name is not None:
        plain["name"] = name
        if name in waiting:
            waiting.remove(name)
    return plain


def _call(call: ToolCall) -> dict[str, JSON]:
    function: dict[str, JSON] = {"name": call.name, "arguments": _arguments(call.arguments)}
    plain: dict[str, JSON] = {"type": "function", "function": function}
    if call.id:
        plain["id"] = call.id
    return plain


def _arguments(text: str) -> JSON:
    """The mapping that the text spells, else the text; no text is no arguments.

    Half of a surrogate pair, which a model may have escaped, is U+FFFD: no prompt can hold it, and the client sends the
    call back with every later turn.
    """
    try:
        value: Any = json.loads(_ESCAPES.sub(_whole, text)) if text.strip() else {}
    except (ValueError, RecursionError):
        return text
    return cast("dict[str, JSON]", value) if isinstance(value, dict) else text


def _whole(escape: re.Match[str]) -> str:
    return "\\ufffd" if escape.lastgroup == "half" else escape.group()


def _text(parts: Iterable[Part]) -> str:
    texts: list[str] = []
    for part in parts:
        match part:
            case Text(text):
                texts.append(text)
            case Image():
                raise Unsupported("this model reads no images", param="messages")
            case Thinking() | ToolCall() | ToolResult():
                pass
    return "".join(texts)


def _function(tool: Tool) -> dict[str, JSON]:
    function: dict[str, JSON] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    # Templates walk the schema's properties, and expect them to be there.
    function["parameters"] = {"type": "object", "properties": {}} if tool.parameters is None else tool.parameters
    return function

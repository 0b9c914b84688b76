"""The fields of a chat that shape its prompt, as OpenAI's chat completions and the servers beside it spell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from tensorfold.errors import DecodeError, InvalidRequest, Unsupported
from tensorfold.ir import JSON, Chat, Tool, ToolChoice
from tensorfold.wire.chat_messages import WireMessage, read_messages

__all__ = [
    "EFFORTS",
    "ChatFields",
    "WireTool",
    "WireToolChoice",
    "offered_tools",
    "read_chat",
    "read_effort",
    "read_tools",
]

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The words for how much a model shall think."""


class WireFunction(msgspec.Struct):
    """A function that may be called."""

    name: str
    description: str | None = None
    parameters: dict[str, JSON] | None = None
    strict: bool | None = None


class WireTool(msgspec.Struct):
    """A tool; only functions are read."""

    type: str
    function: WireFunction | None = None


class WireChosen(msgspec.Struct):
    """A function's name."""

    name: str | None = None


class WireAllowed(msgspec.Struct):
    """Some of the tools, and whether one of them must be called."""

    mode: str
    tools: list[WireTool] = []


class WireToolChoice(msgspec.Struct):
    """A choice that is more than a word."""

    type: str
    function: WireChosen | None = None
    allowed_tools: WireAllowed | None = None


class ChatFields(msgspec.Struct, kw_only=True):
    """The fields; null means left out, everywhere."""

    messages: list[WireMessage]
    tools: list[WireTool] | None = None
    tool_choice: str | WireToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, JSON] | None = None
    template_vars: dict[str, JSON] | None = None
    """TabbyAPI's name of `chat_template_kwargs`, which goes first where both say something."""
    add_generation_prompt: bool | None = None
    """Whether an answer is begun; null is true, unless the final message is continued."""
    continue_final_message: bool | str | None = None
    """Whether the last message is continued, or which part of it: its reasoning (by any of its names) or its content."""


def read_chat(fields: ChatFields) -> tuple[Chat, ToolChoice]:
    """The conversation, and what may be called.

    Raises:
        DecodeError: a field is missing or malformed; names the place.
        InvalidRequest: fields that contradict each other.
        Unsupported: a part, a tool or a choice that is not served.
    """
    if not fields.messages:
        raise DecodeError("messages must hold at least one message", param="messages")
    continued, part = _continued(fields.continue_final_message)
    if continued and fields.add_generation_prompt:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt cannot both be true", param="continue_final_message"
        )
    tools = read_tools(fields.tools or [])
    tools, choice = _choice(fields.tool_choice, tools, fields.parallel_tool_calls is not False)
    chat = Chat(
        messages=read_messages(fields.messages),
        tools=offered_tools(tools, choice),
        template_kwargs={**(fields.template_vars or {}), **(fields.chat_template_kwargs or {})},
        reasoning_effort=read_effort(fields.reasoning_effort, "reasoning_effort"),
        continue_final_message=continued,
        continued_part=part,
        add_generation_prompt=continued or fields.add_generation_prompt is not False,
    )
    return chat, choice


def _continued(wanted: bool | str | None) -> tuple[bool, Literal["thinking", "text"] | None]:
    """Whether, and which part if that is said."""
    match wanted:
        case None | False:
            return False, None
        case True:
            return True, None
        case "reasoning_content" | "reasoning" | "thinking":
            return True, "thinking"
        case "content":
            return True, "text"
        case other:
            raise DecodeError(
                f"continue_final_message is {other[:40]!r}, and must be true, false, content or reasoning_content",
                param="continue_final_message",
            )


def read_tools(tools: list[WireTool]) -> tuple[Tool, ...]:
    """The functions.

    Raises:
        DecodeError: one has no function.
        Unsupported: a tool of another type.
    """
    return tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools))


def offered_tools(tools: tuple[Tool, ...], choice: ToolChoice) -> tuple[Tool, ...]:
    """The tools that the template shows: none when none may be called, one when it must be that one."""
    if choice.mode == "none":
        return ()
    return tools if choice.name is None else tuple(tool for tool in tools if tool.name == choice.name)


def read_effort(effort: str | None, at: str) -> str | None:
    """An effort.

    Raises:
        DecodeError: no such word.
    """
    if effort is not None and effort not in EFFORTS:
        raise DecodeError(f"{at} is {effort[:40]!r}, and must be one of {', '.join(EFFORTS)}", param=at)
    return effort


def _tool(tool: WireTool, at: str) -> Tool:
    if tool.type != "function":
        raise Unsupported(f"{at} is of type {tool.type[:40]!r}, and functions alone are served", param=f"{at}.type")
    if tool.function is None:
        raise DecodeError(f"{at}.function is missing", param=f"{at}.function")
    function = tool.function
    return Tool(function.name, function.description, function.parameters, bool(function.strict))


def _choice(
    choice: str | WireToolChoice | None, tools: tuple[Tool, ...], parallel: bool
) -> tuple[tuple[Tool, ...], ToolChoice]:
    """The tools that may be called at all, and the choice among them."""
    match choice:
        case None | "auto":
            return tools, ToolChoice("auto", parallel=parallel)
        case "none":
            return tools, ToolChoice("none", parallel=parallel)
        case "required" | WireToolChoice(type="function") if not tools:
            raise DecodeError("tool_choice demands a call, and no tools are offered", param="tool_choice")
        case "required":
            return tools, ToolChoice("required", parallel=parallel)
        case WireToolChoice(type="function", function=WireChosen(name=str() as name)):
            _check_offered(name, tools)
            return tools, ToolChoice("required", name, parallel)
        case WireToolChoice(type="function"):
            raise DecodeError("tool_choice.function.name is missing", param="tool_choice.function.name")
        case WireToolChoice(
            type="allowed_tools", allowed_tools=WireAllowed(mode=("auto" | "required") as mode) as some
        ):
            return _allowed(some, tools), ToolChoice(mode, parallel=parallel)
        case WireToolChoice(type="allowed_tools"):
            raise DecodeError(
                "tool_choice.allowed_tools needs a mode, auto or required", param="tool_choice.allowed_tools.mode"
            )
        case WireToolChoice(type=other) | other:
            raise Unsupported(
                f"tool_choice is {str(other)[:40]!r}, and none, auto, required, a function and allowed_tools are served",
                param="tool_choice",
            )


def _allowed(some: WireAllowed, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    names = {tool.name for tool in read_tools(some.tools)}
    for name in names:
        _check_offered(name, tools)
    if not names:
        raise DecodeError("tool_choice.allowed_tools allows no tool", param="tool_choice.allowed_tools.tools")
    return tuple(tool for tool in tools if tool.name in names)


def _check_offered(name: str, tools: Sequence[Tool]) -> None:
    if all(tool.name != name for tool in tools):
        raise DecodeError(f"tool_choice names {name[:80]!r}, which tools does not offer", param="tool_choice")

"""Tools of Responses and the choice among them, to the IR."""

from __future__ import annotations

import msgspec

from tensorfold.errors import DecodeError, Unsupported
from tensorfold.ir import JSON, Tool, ToolChoice

__all__ = ["WireTool", "WireToolChoice", "read_tool_choice", "read_tools"]

_SETTINGS = {
    "web_search": ' (Codex: `-c web_search="disabled"`)',
    "web_search_preview": ' (Codex: `-c web_search="disabled"`)',
    "namespace": " (Codex: `-c agents.enabled=false`)",
}
"""How to turn off what a client offers unasked."""


class WireTool(msgspec.Struct):
    """A function. Tools that a server would run have another type."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, JSON] | None = None
    strict: bool | None = None


class WireAllowed(msgspec.Struct):
    """One of the allowed tools."""

    type: str
    name: str | None = None


class WireToolChoice(msgspec.Struct):
    """A choice that is more than a word."""

    type: str
    name: str | None = None
    mode: str | None = None
    tools: list[WireAllowed] | None = None


def read_tools(tools: list[WireTool]) -> tuple[Tool, ...]:
    """The functions.

    Raises:
        DecodeError: one has no name.
        Unsupported: a tool of another type.
    """
    return tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools))


def _tool(tool: WireTool, at: str) -> Tool:
    if tool.type != "function":
        raise Unsupported(
            f"{at} is of type {tool.type[:40]!r}: this server runs no tools of its own, so leave it out or turn it off"
            f" in the client{_SETTINGS.get(tool.type, '')}; functions are served",
            param="tools",
        )
    if tool.name is None:
        raise DecodeError(f"{at}.name is missing", param=f"{at}.name")
    return Tool(tool.name, tool.description, tool.parameters, bool(tool.strict))


def read_tool_choice(
    choice: str | WireToolChoice | None, tools: tuple[Tool, ...], parallel: bool
) -> tuple[tuple[Tool, ...], ToolChoice]:
    """The tools that may be called at all, and the choice among them.

    Raises:
        DecodeError: an unknown word, a call that is demanded without tools, or a name that is not offered.
        Unsupported: a choice of a tool that is no function.
    """
    match choice:
        case None | "auto":
            return tools, ToolChoice("auto", parallel=parallel)
        case "none":
            return (), ToolChoice("none", parallel=parallel)
        case "required":
            return _some(tools), ToolChoice("required", parallel=parallel)
        case WireToolChoice(type="function", name=str() as name):
            return (_offered(name, tools),), ToolChoice("required", name, parallel)
        case WireToolChoice(type="allowed_tools"):
            return _allowed(choice, tools, parallel)
        case WireToolChoice(type="function"):
            raise DecodeError("tool_choice.name is missing", param="tool_choice.name")
        case WireToolChoice(type=other) | other:
            raise Unsupported(
                f"tool_choice is {str(other)[:40]!r}, and none, auto, required, a function and allowed_tools are served",
                param="tool_choice",
            )


def _allowed(choice: WireToolChoice, tools: tuple[Tool, ...], parallel: bool) -> tuple[tuple[Tool, ...], ToolChoice]:
    allowed: list[Tool] = []
    for index, tool in enumerate(choice.tools or ()):
        if tool.type != "function" or tool.name is None:
            raise Unsupported(f"tool_choice.tools[{index}] is no function with a name", param="tool_choice.tools")
        allowed.append(_offered(tool.name, tools))
    match choice.mode:
        case "auto" | "required" as mode:
            return _some(tuple(allowed)), ToolChoice(mode, parallel=parallel)
        case _:
            raise DecodeError("tool_choice.mode must be auto or required", param="tool_choice.mode")


def _some(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    if not tools:
        raise DecodeError("tool_choice demands or allows tools, and none are offered", param="tool_choice")
    return tools


def _offered(name: str, tools: tuple[Tool, ...]) -> Tool:
    for tool in tools:
        if tool.name == name:
            return tool
    raise DecodeError(f"tool_choice names {name[:80]!r}, which tools does not offer", param="tool_choice")

"""Tools and the choice among them, to the IR."""

from __future__ import annotations

import msgspec

from tensorfold.errors import DecodeError, Unsupported
from tensorfold.ir import JSON, Tool, ToolChoice

__all__ = ["WireTool", "WireToolChoice", "read_tool_choice", "read_tools"]


class WireTool(msgspec.Struct):
    """A tool of the caller's own. Those that a server would run have another type."""

    name: str | None = None
    type: str | None = None
    input_schema: dict[str, JSON] | None = None
    description: str | None = None
    strict: bool | None = None
    defer_loading: bool | None = None
    """Would keep the tool from the model until a search finds it."""
    allowed_callers: list[str] | None = None
    input_examples: list[JSON] | None = None


class WireToolChoice(msgspec.Struct):
    """Whether and what to call."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


def read_tools(tools: list[WireTool]) -> tuple[Tool, ...]:
    """The tools.

    Raises:
        DecodeError: a tool has no schema.
        Unsupported: a server-side tool, or a property of one that is not served.
    """
    return tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools))


def _tool(tool: WireTool, at: str) -> Tool:
    if tool.type not in (None, "custom"):
        raise Unsupported(
            f"{at} is of type {tool.type[:40]!r}: this server runs no tools; offer custom tools with an input_schema",
            param=f"{at}.type",
        )
    if tool.name is None:
        raise DecodeError(f"{at}.name is missing", param=f"{at}.name")
    if tool.input_schema is None:
        raise DecodeError(f"{at}.input_schema is missing", param=f"{at}.input_schema")
    for field, asked in (
        ("defer_loading", tool.defer_loading),
        ("allowed_callers", any(caller != "direct" for caller in tool.allowed_callers or ())),
        ("input_examples", tool.input_examples),
    ):
        if asked:
            raise Unsupported(f"{at}.{field} is not served here: leave it out", param=f"{at}.{field}")
    return Tool(tool.name, tool.description, tool.input_schema, bool(tool.strict))


def read_tool_choice(choice: WireToolChoice | None, tools: tuple[Tool, ...]) -> ToolChoice:
    """The choice.

    Raises:
        DecodeError: an unknown type, or a name that is missing or not offered.
    """
    if choice is None:
        return ToolChoice()
    parallel = not choice.disable_parallel_tool_use
    match choice.type:
        case "auto":
            return ToolChoice("auto", parallel=parallel)
        case "none":
            return ToolChoice("none", parallel=parallel)
        case "any" | "tool" if not tools:
            raise DecodeError(f"tool_choice is {choice.type}, and no tools are offered", param="tool_choice")
        case "any":
            return ToolChoice("required", parallel=parallel)
        case "tool":
            return ToolChoice("required", _offered(choice.name, tools), parallel)
        case other:
            raise DecodeError(
                f"tool_choice.type is {other[:40]!r}, and must be auto, any, tool or none", param="tool_choice.type"
            )


def _offered(name: str | None, tools: tuple[Tool, ...]) -> str:
    if name is None:
        raise DecodeError("tool_choice.name is missing", param="tool_choice.name")
    if all(tool.name != name for tool in tools):
        raise DecodeError(f"tool_choice names {name[:80]!r}, which tools does not offer", param="tool_choice.name")
    return name

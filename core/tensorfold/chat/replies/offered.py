"""The functions that a reply may call, and the types that their schemas give to parameters."""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold.ir import JSON, Chat, Prompt, Request, Tool

__all__ = ["Offered"]


class Offered:
    """Looked up by name. Nothing of it changes."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self.longest = max(map(len, self._tools), default=0)
        """Characters of the longest name."""

    @staticmethod
    def by(request: Request) -> Offered:
        """What this request offers: nothing with `none`, and one function when it must be that one."""
        choice = request.tool_choice
        if choice.mode == "none":
            return Offered(())
        return Offered(tool for tool in _tools(request.prompt) if choice.name in (None, tool.name))

    @property
    def names(self) -> tuple[str, ...]:
        """In the order in which they were offered."""
        return tuple(self._tools)

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    def __bool__(self) -> bool:
        return bool(self._tools)

    def takes(self, name: str) -> bool:
        """Whether the function has parameters, as far as its schema tells."""
        return bool(_field(self._tools[name].parameters or {}, "properties"))

    def type_of(self, name: str, parameter: str) -> str | None:
        """The explicit type of a parameter: one name. Unions and references are not resolved: None, as without a type."""
        schema = self._tools[name].parameters or {}
        type_ = _field(_field(_field(schema, "properties"), parameter), "type")
        return type_ if isinstance(type_, str) else None


def _tools(prompt: Prompt) -> tuple[Tool, ...]:
    return prompt.tools if isinstance(prompt, Chat) else ()


def _field(value: JSON, key: str) -> JSON:
    """An object's field; None where there is no object or no such field."""
    return value.get(key) if isinstance(value, dict) else None

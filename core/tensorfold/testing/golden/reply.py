"""One golden reply, and the functions that all of them are offered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tensorfold.ir import JSON, Tool

__all__ = ["PARIS_CALL", "ROME_CALL", "TOOLS", "Golden"]


def _tool(name: str, **types: JSON) -> Tool:
    properties: dict[str, JSON] = {
        key: {"type": type_} if isinstance(type_, str) else type_ for key, type_ in types.items()
    }
    return Tool(name, None, {"type": "object", "properties": properties})


TOOLS: Final = (
    _tool("get_weather", city="string"),
    _tool("book", city="string", count="integer", opts="object", tags="array"),
    _tool("put", zip="string", code="string", flag="string", n="integer"),
    _tool("run", timeout="number", ratio="number", all="boolean"),
    _tool("f", a="string", b="string", c="object", d="null", u={"type": ["integer", "null"]}, r={"$ref": "#/$defs/x"}),
    _tool("write_file", content="string"),
    _tool("now"),
    Tool("ping"),
)
"""What every golden reply is offered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """One reply."""

    name: str
    text: str
    prompt: str = ""
    """The prompt's end."""
    content: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, Mapping[str, object] | str], ...] = ()
    """Names and arguments, parsed; a text stands for arguments that do not parse, as they were written."""
    broken: bool = False


PARIS_CALL: Final = ("get_weather", {"city": "Paris"})
ROME_CALL: Final = ("get_weather", {"city": "Rome"})

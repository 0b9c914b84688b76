"""The notations of calls, as formats declare them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensorfold.chat.replies.calls import ArgumentWriter, Header
from tensorfold.chat.replies.json_calls import json_arguments, json_header
from tensorfold.chat.replies.offered import Offered
from tensorfold.chat.replies.source import Mismatch, Reading, Source, expect, next_of, skip_blanks
from tensorfold.chat.replies.xml_calls import xml_arguments, xml_header
from tensorfold.contracts.chat import CallFrame

__all__ = ["BareCalls", "TaggedCalls"]


@dataclass(frozen=True, slots=True)
class TaggedCalls:
    """`<tool_call>`, then a call in XML or JSON, then `</tool_call>`: models of either training write both."""

    opener: str = "<tool_call>"
    closer: str = "</tool_call>"
    written: Literal["xml", "json"] = "json"
    """How the family's models write, where their template does not show it."""

    @property
    def frame(self) -> CallFrame:
        """Of XML or JSON."""
        if self.written == "xml":
            before = f"{self.opener}\n<function="
            return CallFrame(before, ">\n<parameter=", f">\n</function>\n{self.closer}")
        before = f'{self.opener}\n{{"name": "'
        return CallFrame(before, '", "arguments": {"', f'", "arguments": {{}}}}\n{self.closer}')

    def header(self, source: Source, offered: Offered) -> Reading[Header]:
        """By the first character."""
        yield from skip_blanks(source)
        if (yield from next_of(source, ("<", "{"))) == "<":
            return (yield from xml_header(source, offered))
        return (yield from json_header(source, offered))

    def arguments(self, source: Source, header: Header, offered: Offered, out: ArgumentWriter) -> Reading[None]:
        """As the header was."""
        if header.kind == "xml":
            yield from xml_arguments(source, header, offered, out, self.closer)
        else:
            yield from json_arguments(source, header, out)
        yield from _closer(source, self.closer)


def _closer(source: Source, closer: str) -> Reading[None]:
    """The closer, if it stands next: the call is whole without it."""
    place = source.keep()
    try:
        yield from skip_blanks(source)
        yield from expect(source, closer)
    except Mismatch:
        source.again(place)
    else:
        source.forget(place)


@dataclass(frozen=True, slots=True)
class BareCalls:
    """A reply that is one JSON object: a call when it names an offered function, else a structured answer."""

    opener: str = "{"
    closer: str = ""
    frame: CallFrame | None = None

    def header(self, source: Source, offered: Offered) -> Reading[Header]:
        """Behind the opening bracket."""
        return (yield from json_header(source, offered, any_order=False))

    def arguments(self, source: Source, header: Header, offered: Offered, out: ArgumentWriter) -> Reading[None]:
        """The rest of the object."""
        yield from json_arguments(source, header, out)

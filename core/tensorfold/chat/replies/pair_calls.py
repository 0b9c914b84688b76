"""Calls as `NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>`: GLM's notation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tensorfold.chat.replies.calls import ArgumentWriter, Header, Unoffered
from tensorfold.chat.replies.offered import Offered
from tensorfold.chat.replies.source import Mismatch, Reading, Source, expect, skip_blanks, until
from tensorfold.chat.replies.values import quoted
from tensorfold.chat.replies.xml_calls import MAX_NAME, ValueEnd, copy_parameter
from tensorfold.contracts.chat import CallFrame

__all__ = ["PairCalls"]

_NAME: Final = re.compile(r"[\w.-]+")
_KEY: Final = "<arg_key>"
_KEY_END: Final = "</arg_key>"
_VALUE: Final = "<arg_value>"
_VALUE_END: Final = "</arg_value>"


@dataclass(frozen=True, slots=True)
class PairCalls:
    """Strings stand as they are, other values as JSON; no white space belongs to the notation."""

    opener: str = "<tool_call>"
    closer: str = "</tool_call>"

    @property
    def frame(self) -> CallFrame:
        """The name stands alone."""
        return CallFrame(self.opener, _KEY, self.closer)

    def header(self, source: Source, offered: Offered) -> Reading[Header]:
        """Through the name; its end is the first key or the closer, which is consumed."""
        name, mark = yield from until(source, _KEY, self.closer, most=MAX_NAME)
        name = name.strip()
        if name not in offered:
            # Prose between the marks names nothing.
            raise Unoffered if _NAME.fullmatch(name) else Mismatch
        return Header(name, kind=mark)

    def arguments(self, source: Source, header: Header, offered: Offered, out: ArgumentWriter) -> Reading[None]:
        """Pairs up to the closer."""
        mark, separator = header.kind, "{"
        while mark == _KEY:
            key, _ = yield from until(source, _KEY_END, most=MAX_NAME)
            yield from skip_blanks(source)
            yield from expect(source, _VALUE)
            out.write(f"{separator}{quoted(key.strip())}: ")
            separator = ", "
            end = ValueEnd(source, _VALUE_END, (_KEY, self.closer))
            yield from copy_parameter(source, offered.type_of(header.name, key.strip()), out, end, newline=False)
            yield from skip_blanks(source)
            mark = yield from expect(source, _KEY, self.closer)
        out.write("{}" if separator == "{" else "}")

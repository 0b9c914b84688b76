"""Calls as `<function=NAME><parameter=KEY>VALUE</parameter></function>`: Qwen's and Nemotron's notation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tensorfold.chat.replies.calls import ArgumentWriter, Header, Unoffered
from tensorfold.chat.replies.json_text import Collected
from tensorfold.chat.replies.offered import Offered
from tensorfold.chat.replies.source import Mismatch, Reading, Source, expect, more, next_of, skip_blanks, until
from tensorfold.chat.replies.values import escaped, quoted, typed_json

__all__ = ["MAX_NAME", "ValueEnd", "copy_parameter", "xml_arguments", "xml_header"]

MAX_NAME: Final = 1024
"""Characters of a function's or a parameter's name."""

_FUNCTION: Final = "<function="
_FUNCTION_END: Final = "</function>"
_PARAMETER: Final = "<parameter="
_PARAMETER_END: Final = "</parameter>"


def xml_header(source: Source, offered: Offered) -> Reading[Header]:
    """Through the name; behind it stands the first parameter, or the function's end.

    Raises:
        Unoffered, Mismatch: as `CallNotation.header`.
    """
    yield from expect(source, _FUNCTION)
    name, _ = yield from until(source, ">", most=MAX_NAME)
    yield from skip_blanks(source)
    yield from next_of(source, (_PARAMETER, _FUNCTION_END))
    if name not in offered:
        raise Unoffered
    return Header(name, kind="xml")


def xml_arguments(source: Source, header: Header, offered: Offered, out: ArgumentWriter, closer: str) -> Reading[None]:
    """Parameters up to the function's end, and the closer if it is there.

    Raises:
        Mismatch: as `CallNotation.arguments`.
    """
    separator = "{"
    while (yield from expect(source, _PARAMETER, _FUNCTION_END, closer)) == _PARAMETER:
        key, _ = yield from until(source, ">", most=MAX_NAME)
        out.write(f"{separator}{quoted(key)}: ")
        separator = ", "
        yield from _skip_newline(source)
        end = ValueEnd(source, _PARAMETER_END, (_PARAMETER, _FUNCTION_END, closer))
        yield from copy_parameter(source, offered.type_of(header.name, key), out, end, newline=True)
    out.write("{}" if separator == "{" else "}")


def _skip_newline(source: Source) -> Reading[None]:
    """The template writes each value on lines of its own."""
    while not source.next:
        yield from more(source)
    if source.next == "\n":
        source.skip(1)


# ---- values between two marks ------------------------------------------------------------------------------


class ValueEnd:
    """Where a value ends: at its closing mark, if behind that comes what may follow. Else the mark is quoted text."""

    def __init__(self, source: Source, mark: str, behind: Sequence[str]) -> None:
        self.mark = mark
        self._source = source
        self._behind = behind

    def confirmed(self) -> Reading[bool]:
        """Whether the mark that was just consumed ends the value; then what follows it is next, else the text behind it."""
        place = self._source.keep()
        try:
            yield from skip_blanks(self._source)
            yield from next_of(self._source, self._behind)
        except Mismatch:
            if self._source.ended and not self._source.next:
                # Nothing follows at all: the reply was cut here.
                self._source.forget(place)
                return True
            self._source.again(place)
            return False
        self._source.forget(place)
        return True


def copy_parameter(
    source: Source, type_: str | None, out: ArgumentWriter, end: ValueEnd, *, newline: bool
) -> Reading[None]:
    """Copy a value as JSON of its type, through its closing mark: strings as they come, others once they are whole.

    `newline`: the one before the closing mark belongs to the notation.

    Raises:
        Mismatch: the reply is over; what was read of a string is written.
    """
    if type_ in ("array", "object", "boolean", "integer", "number", "null"):
        whole = Collected()
        yield from _copy_text(source, whole, end, newline=newline)
        out.write(typed_json(whole.text, type_) if whole.text.strip() else quoted(whole.text))
        return
    out.write('"')
    yield from _copy_text(source, _Escaped(out), end, newline=newline)
    out.write('"')


class _Escaped:
    def __init__(self, out: ArgumentWriter) -> None:
        self._out = out

    def write(self, text: str) -> None:
        self._out.write(escaped(text))


def _copy_text(source: Source, out: ArgumentWriter, end: ValueEnd, *, newline: bool) -> Reading[None]:
    held = ""
    while True:
        text, mark = source.take((end.mark,))
        text = held + text
        held = "\n" if newline and text.endswith("\n") else ""
        if len(text) > len(held):
            out.write(text[: len(text) - len(held)])
        if not mark:
            yield from more(source)
        elif (yield from end.confirmed()):
            return
        else:
            out.write(held + mark)
            held = ""

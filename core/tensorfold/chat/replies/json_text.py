"""JSON copied while it is checked: each character is written as soon as it is certain that JSON allows it there."""

from __future__ import annotations

import re
from typing import Final

from tensorfold.chat.replies.calls import ArgumentWriter
from tensorfold.chat.replies.source import Mismatch, Reading, Source, expect, more, skip_blanks
from tensorfold.chat.replies.values import escaped

__all__ = ["Collected", "copy_string", "copy_value"]

MAX_DEPTH: Final = 64
MAX_SCALAR: Final = 400
_SCALAR: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?|true|false|null", re.ASCII)
_ESCAPED: Final = '"\\/bfnrt'
_HEX: Final = "0123456789abcdefABCDEF"


class Collected:
    """An `ArgumentWriter` that keeps what is written."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def write(self, text: str) -> None:
        """The next piece."""
        self._parts.append(text)

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self._parts)


def copy_value(source: Source, out: ArgumentWriter, *, depth: int = 0) -> Reading[None]:
    """Copy one JSON value, without the white space around it.

    Raises:
        Mismatch: it is no JSON, is nested too deeply, or the reply is over; what was good of it is written.
    """
    if depth > MAX_DEPTH:
        raise Mismatch
    while not source.next:
        yield from more(source)
    match source.next:
        case "{":
            yield from _copy_items(source, out, "}", depth)
        case "[":
            yield from _copy_items(source, out, "]", depth)
        case '"':
            yield from copy_string(source, out)
        case _:
            yield from _copy_scalar(source, out)


def _copy_items(source: Source, out: ArgumentWriter, close: str, depth: int) -> Reading[None]:
    """An object's or a list's bracket, items and bracket."""
    out.write(source.skip(1))
    yield from skip_blanks(source)
    if source.next == close:
        out.write(source.skip(1))
        return
    while True:
        if close == "}":
            yield from skip_blanks(source)
            yield from copy_string(source, out)
            yield from skip_blanks(source)
            out.write((yield from expect(source, ":")) + " ")
        yield from skip_blanks(source)
        yield from copy_value(source, out, depth=depth + 1)
        yield from skip_blanks(source)
        mark = yield from expect(source, ",", close)
        out.write(mark if mark == close else ", ")
        if mark == close:
            return


def copy_string(source: Source, out: ArgumentWriter) -> Reading[None]:
    """Copy one JSON string. Control characters that JSON does not allow within it are written as their escapes.

    Raises:
        Mismatch: no string, an escape that JSON does not have, or the reply is over.
    """
    out.write((yield from expect(source, '"')))
    while True:
        text, mark = source.take(('"', "\\"))
        if text:
            out.write(text if text.isprintable() else _printable(text))
        match mark:
            case '"':
                out.write(mark)
                return
            case "\\":
                out.write((yield from _escape(source)))
            case _:
                yield from more(source)


def _printable(text: str) -> str:
    return "".join(escaped(each) if each < " " else each for each in text)


def _escape(source: Source) -> Reading[str]:
    """What stands behind a backslash, with it: whole, so that no piece ends within an escape."""
    while not source.next:
        yield from more(source)
    character = source.skip(1)
    if character in _ESCAPED:
        return "\\" + character
    if character != "u":
        raise Mismatch
    digits = ""
    while len(digits) < 4:
        while not source.next:
            yield from more(source)
        if source.next not in _HEX:
            raise Mismatch
        digits += source.skip(1)
    return "\\u" + digits


def _copy_scalar(source: Source, out: ArgumentWriter) -> Reading[None]:
    text = ""
    while len(text) <= MAX_SCALAR:
        while not source.next:
            yield from more(source)
        if source.next in ",]}" or source.next.isspace():
            if not _SCALAR.fullmatch(text):
                break
            out.write(text)
            return
        text += source.skip(1)
    raise Mismatch

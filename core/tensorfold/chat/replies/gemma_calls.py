"""Calls as `call:NAME{key:<|"|>text<|"|>,other:1}`: Gemma 4's notation, JSON with bare keys and quotes of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tensorfold.chat.replies.calls import ArgumentWriter, Header, Unoffered
from tensorfold.chat.replies.json_text import MAX_DEPTH, MAX_SCALAR
from tensorfold.chat.replies.offered import Offered
from tensorfold.chat.replies.source import Mismatch, Reading, Source, expect, more, next_of, skip_blanks, until
from tensorfold.chat.replies.values import escaped, quoted
from tensorfold.chat.replies.xml_calls import MAX_NAME
from tensorfold.contracts.chat import CallFrame

__all__ = ["GEMMA_QUOTE", "GemmaCalls"]

GEMMA_QUOTE: Final = '<|"|>'
"""One control token, before and behind every text."""

_SCALAR: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?|true|false|null", re.ASCII)
_PYTHON: Final = {"None": "null", "True": "true", "False": "false"}
"""As the template's first revision writes them."""
_ENDS: Final = frozenset(",}]")


@dataclass(frozen=True, slots=True)
class GemmaCalls:
    """Values carry their types themselves."""

    opener: str = "<|tool_call>"
    closer: str = "<tool_call|>"

    @property
    def frame(self) -> CallFrame:
        """`call:` and a bracket."""
        return CallFrame(f"{self.opener}call:", "{", f"{{}}{self.closer}")

    def header(self, source: Source, offered: Offered) -> Reading[Header]:
        """Through the name, up to the arguments' bracket."""
        yield from expect(source, "call:")
        name, _ = yield from until(source, "{", most=MAX_NAME)
        if name not in offered:
            raise Unoffered
        return Header(name)

    def arguments(self, source: Source, header: Header, offered: Offered, out: ArgumentWriter) -> Reading[None]:
        """The arguments, and the closer if it is there: the model may stop at the result's mark instead."""
        yield from _object(source, out, 0)
        place = source.keep()
        try:
            yield from skip_blanks(source)
            yield from expect(source, self.closer)
        except Mismatch:
            source.again(place)
        else:
            source.forget(place)


def _object(source: Source, out: ArgumentWriter, depth: int) -> Reading[None]:
    """Keys and values through the bracket; the opening one is consumed."""
    separator = "{"
    while True:
        yield from skip_blanks(source)
        if source.next == "}":
            source.skip(1)
            out.write("{}" if separator == "{" else "}")
            return
        key = yield from _name(source)
        out.write(f"{separator}{quoted(key)}: ")
        separator = ", "
        yield from _value(source, out, depth)
        yield from skip_blanks(source)
        if (yield from next_of(source, (",", "}"))) == ",":
            source.skip(1)


def _list(source: Source, out: ArgumentWriter, depth: int) -> Reading[None]:
    separator = "["
    while True:
        yield from skip_blanks(source)
        if source.next == "]":
            source.skip(1)
            out.write("[]" if separator == "[" else "]")
            return
        out.write(separator)
        separator = ", "
        yield from _value(source, out, depth)
        yield from skip_blanks(source)
        if (yield from next_of(source, (",", "]"))) == ",":
            source.skip(1)


def _name(source: Source) -> Reading[str]:
    """A key, bare or quoted, and its colon."""
    if (yield from _stands(source, GEMMA_QUOTE)):
        source.skip(len(GEMMA_QUOTE))
        key, _ = yield from until(source, GEMMA_QUOTE, most=MAX_NAME)
        yield from skip_blanks(source)
        yield from expect(source, ":")
        return key
    key, _ = yield from until(source, ":", most=MAX_NAME)
    return key


def _stands(source: Source, text: str) -> Reading[bool]:
    """Whether this text stands next."""
    while (state := source.begins(text)) is None:
        yield from more(source)
    return state


def _value(source: Source, out: ArgumentWriter, depth: int) -> Reading[None]:
    if depth > MAX_DEPTH:
        raise Mismatch
    yield from skip_blanks(source)
    if (yield from _stands(source, GEMMA_QUOTE)):
        source.skip(len(GEMMA_QUOTE))
        yield from _string(source, out)
        return
    while not source.next:
        yield from more(source)
    match source.next:
        case "{":
            source.skip(1)
            yield from _object(source, out, depth + 1)
        case "[":
            source.skip(1)
            yield from _list(source, out, depth + 1)
        case _:
            yield from _scalar(source, out)


def _string(source: Source, out: ArgumentWriter) -> Reading[None]:
    out.write('"')
    while True:
        text, mark = source.take((GEMMA_QUOTE,))
        if text:
            out.write(escaped(text))
        if mark:
            out.write('"')
            return
        yield from more(source)


def _scalar(source: Source, out: ArgumentWriter) -> Reading[None]:
    """A number or a word of JSON; other words are texts that the model forgot to quote."""
    text = ""
    while len(text) <= MAX_SCALAR:
        while not source.next:
            yield from more(source)
        if source.next in _ENDS:
            word = text.strip()
            word = _PYTHON.get(word, word)
            out.write(word if _SCALAR.fullmatch(word) else quoted(word))
            return
        text += source.skip(1)
    raise Mismatch

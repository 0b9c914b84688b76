"""Calls as `{"name": NAME, "arguments": {...}}`: the Hermes notation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from tensorfold.chat.replies.calls import ArgumentWriter, Header, Unoffered
from tensorfold.chat.replies.json_text import Collected, copy_string, copy_value
from tensorfold.chat.replies.offered import Offered
from tensorfold.chat.replies.source import Mismatch, Reading, Source, expect, next_of, skip_blanks
from tensorfold.ir import JSON

__all__ = ["json_arguments", "json_header"]

_ARGUMENTS: Final = ("arguments", "parameters")
"""Keys that the arguments are found under."""

_VALUES: Final = ('"', "{", "[", "t", "f", "n", "-", *"0123456789")
"""What a value begins with."""


def json_header(source: Source, offered: Offered, *, any_order: bool = True) -> Reading[Header]:
    """Through the name to the arguments' opening bracket, when that is the order of things.

    Else the whole object, with `any_order`; a call of whole arguments is told at once.

    Raises:
        Unoffered, Mismatch: as `CallNotation.header`.
    """
    yield from next_of(source, ("{",))
    source.keep()
    try:
        name = yield from _name_first(source)
    except _OtherOrderError:
        if not any_order:
            raise Mismatch from None
        source.again()
        return (yield from _whole_header(source, offered))
    source.forget()
    if name not in offered:
        raise Unoffered
    return Header(name, kind="json")


class _OtherOrderError(Exception):
    """The object does not begin with a name and an object of arguments."""


def _name_first(source: Source) -> Reading[str]:
    """The name, if the arguments' object comes next."""
    source.skip(1)
    if (yield from _key(source)) != "name":
        raise _OtherOrderError
    name = yield from _text(source)
    yield from skip_blanks(source)
    if (yield from expect(source, ",", "}")) == "}" or (yield from _key(source)) not in _ARGUMENTS:
        raise _OtherOrderError
    if (yield from next_of(source, _VALUES)) != "{":
        raise _OtherOrderError
    return name


def _key(source: Source) -> Reading[str]:
    yield from skip_blanks(source)
    text = yield from _text(source)
    yield from skip_blanks(source)
    yield from expect(source, ":")
    yield from skip_blanks(source)
    return text


def _text(source: Source) -> Reading[str]:
    """A string's value."""
    if (yield from next_of(source, _VALUES)) != '"':
        raise _OtherOrderError
    copied = Collected()
    yield from copy_string(source, copied)
    value: str = json.loads(copied.text)
    return value


def _whole_header(source: Source, offered: Offered) -> Reading[Header]:
    """The whole object, which has to be a call."""
    whole = Collected()
    yield from copy_value(source, whole)
    call: dict[str, JSON] = json.loads(whole.text)
    name, arguments = call.get("name"), _arguments_of(call)
    if not isinstance(name, str) or arguments is None:
        raise Mismatch
    if name not in offered:
        raise Unoffered
    return Header(name, kind="json", arguments=arguments)


def _arguments_of(call: Mapping[str, JSON]) -> str | None:
    """The arguments of a parsed call, as JSON; None: they are no object."""
    given = next((value for key in _ARGUMENTS if (value := call.get(key)) is not None), None)
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.strip() else None
        except (ValueError, RecursionError):
            return None
    if given is None:
        return "{}"
    return json.dumps(given, ensure_ascii=False) if isinstance(given, dict) else None


def json_arguments(source: Source, header: Header, out: ArgumentWriter) -> Reading[None]:
    """The arguments, and the rest of the call's object.

    Raises:
        Mismatch: as `CallNotation.arguments`.
    """
    if header.arguments is not None:
        out.write(header.arguments)
        return
    yield from copy_value(source, out)
    ignored = Collected()
    yield from skip_blanks(source)
    while (yield from expect(source, ",", "}")) == ",":
        yield from skip_blanks(source)
        yield from copy_string(source, ignored)
        yield from skip_blanks(source)
        yield from expect(source, ":")
        yield from skip_blanks(source)
        yield from copy_value(source, ignored)
        yield from skip_blanks(source)

"""Calls as `{"name": NAME, "arguments": {...}}`: the Hermes notation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from tensorfold.chat.replies.calls import ArgumentWriter, Header, Unoffered
from tensorfold.chat.replies.json_text import Collected, copy_string, copy_value
from tensorfold.chat.replies.offered import Offered
from tensorfold.chat.replies.source import Mismatch, Reading, Source, expect, next_of, skip_blanks
from tensorfold.wire.arguments import arguments_object

__all__ = ["json_arguments", "json_header"]

_ARGUMENTS: Final = ("arguments", "parameters")
"""Keys that the arguments are found under."""

_VALUES: Final = ('"', "{", "[", "t", "f", "n", "-", *"0123456789")
"""What a value begins with."""
_READER: Final = json.JSONDecoder()
_HALF: Final = re.compile("[\ud800-\udfff]")


def json_header(source: Source, offered: Offered, *, any_order: bool = True) -> Reading[Header]:
    """Through the name to the arguments' opening bracket, when that is the order of things.

    Else the whole object, with `any_order`; a call of whole arguments is told at once.

    Raises:
        Unoffered, Mismatch: as `CallNotation.header`.
    """
    yield from next_of(source, ("{",))
    place = source.keep()
    try:
        name = yield from _name_first(source)
    except _OtherOrderError:
        if not any_order:
            raise Mismatch from None
        source.again(place)
        return (yield from _whole_header(source, offered))
    source.forget(place)
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
    fields = _fields(whole.text)
    name = _string(fields.get("name"))
    given = next((value for key in _ARGUMENTS if (value := fields.get(key, "null")) != "null"), None)
    arguments = "{}" if given is None else _arguments(given)
    if name is None or arguments is None:
        raise Mismatch
    if name not in offered:
        raise Unoffered
    return Header(name, kind="json", arguments=arguments)


def _fields(text: str) -> Mapping[str, str]:
    """The values of an object as `copy_value` writes it, each as it is spelled.

    Read and written anew, numbers would change, and halves of surrogate pairs could not be sent.
    """
    fields: dict[str, str] = {}
    at = len("{")
    while text[at : at + 1] == '"':
        key, end = _READER.raw_decode(text, at)
        begin = end + len(": ")
        _, end = _READER.raw_decode(text, begin)
        fields[key] = text[begin:end]
        at = end + len(", ")
    return fields


def _string(spelled: str | None) -> str | None:
    """A string's value; None: it is no string."""
    return json.loads(spelled) if spelled is not None and spelled.startswith('"') else None


def _arguments(spelled: str) -> str | None:
    """The JSON of a call's arguments, which some models write as a text of JSON; None: they are no object."""
    text = _string(spelled)
    if text is None:
        return spelled if spelled.startswith("{") else None
    if not text.strip():
        return "{}"
    # Half of a surrogate pair that the text spelled is spelled again.
    text = _HALF.sub(lambda half: f"\\u{ord(half.group()):04x}", text)
    return text if arguments_object(text) is not None else None


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

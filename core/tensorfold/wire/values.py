"""One JSON text to one typed value; what msgspec says of a bad one, in plain words and with the field's path."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from tensorfold.errors import DecodeError
from tensorfold.wire.paths import path_at

__all__ = ["decode_value"]

T = TypeVar("T")

_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
    "bytes": "a string",
}
_LONGEST = 120
"""Characters of msgspec's words that are told."""
_EXPECTED = re.compile(r"Expected `([^`]+)`(.*?), got `(\w+)`")
_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]+)`")
_PLACE = re.compile(r" - at `([^`]*)`$")
_OFFSET = re.compile(r"\(byte (\d+)\)$")
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole pair
    rb"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\.",
    re.DOTALL,
)


def decode_value(decoder: msgspec.json.Decoder[T], text: bytes | msgspec.Raw, at: str = "") -> T:
    """A JSON text that `check_body` has passed, as the decoder's type; `at` is the path of the text in its body.

    Raises:
        DecodeError: it is no JSON, or of another shape; `param` is the path of the field.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise _wrong_shape(str(error), at) from None
    except msgspec.DecodeError as error:
        raise _not_json(bytes(text), str(error), at) from None
    except RecursionError:
        raise DecodeError("the body is nested too deeply", param=at or None) from None


def _wrong_shape(problem: str, at: str) -> DecodeError:
    place = _PLACE.search(problem)
    path = _path(at, place.group(1) if place else "$")
    problem = problem[: place.start()] if place else problem
    if missing := _MISSING.match(problem):
        field = f"{path}.{missing.group(1)}" if path else missing.group(1)
        return DecodeError(f"{field} is missing", param=field)
    if unknown := _UNKNOWN.match(problem):
        field = f"{path}.{unknown.group(1)}" if path else unknown.group(1)
        return DecodeError(f"{field} is no field of this API", param=field)
    subject = path or "the body"
    if expected := _EXPECTED.match(problem):
        wanted, bound, got = expected.groups()
        rule = f"{_either(wanted)}{bound.replace('`', '')}"
        return DecodeError(f"{subject} must be {rule}, and is {_WORDS.get(got, got)}", param=path or None)
    if problem == "Number out of range":
        return DecodeError(f"{subject} must be a finite number", param=path or None)
    if problem == "Integer value out of range":
        return DecodeError(f"{subject} must be an integer of at most 64 bits", param=path or None)
    if len(problem) > _LONGEST:  # it holds a value that was sent
        problem = f"{problem[:_LONGEST]}..."
    return DecodeError(f"{subject}: {problem[0].lower()}{problem[1:].replace('`', '')}", param=path or None)


def _path(at: str, place: str) -> str:
    """msgspec's `$.a[0].b`, seen from the body; an unnamed key of a map (`[...]`) is left out."""
    rest = place.removeprefix("$").replace("[...]", "")
    return f"{at}{rest}" if at else rest.removeprefix(".")


def _either(types: str) -> str:
    names = types.split(" | ")
    if "float" in names and "int" in names:
        names.remove("int")
    words = [word for name in names for word in _WORDS.get(name, name).split(" or ")]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _not_json(text: bytes, problem: str, at: str) -> DecodeError:
    if half := next((match for match in _ESCAPE.finditer(text) if match.group("half")), None):
        spelling = half.group("half").decode()
        offset, what = half.start(), f"{spelling} is half of a surrogate pair, and no character"
    elif found := _OFFSET.search(problem):
        offset = int(found.group(1))
        what = f"{problem[: found.start()].strip().removeprefix('JSON is malformed: ')} at byte {offset}"
    else:
        offset, what = len(text), "it ends too early" if "truncated" in problem else problem
    inner = path_at(text, offset)
    path = _path(at, f"$.{inner}" if inner and not inner.startswith("[") else f"${inner or ''}")
    where = f" (in {path})" if path else ""
    return DecodeError(f"the body is not valid JSON{where}: {what}", param=path or None)

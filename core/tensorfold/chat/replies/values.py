"""Text as JSON, by the type that a schema declares for it."""

from __future__ import annotations

import json
import re
from typing import Any, Final

__all__ = ["escaped", "quoted", "typed_json"]

_INTEGER: Final = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)
_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_MAX_NUMBER: Final = 400
"""Characters of a number; Python reads no integers of more than a few thousand digits."""
_EXACT: Final = 2**53
"""Up to here every float that is an integer is exactly that."""
_CLOSING: Final = {"{": "}", "[": "]"}


def quoted(text: str) -> str:
    """A JSON string."""
    return json.dumps(text, ensure_ascii=False)


def escaped(text: str) -> str:
    """The inside of a JSON string; pieces may be joined."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def typed_json(text: str, type_: str | None) -> str:
    """The JSON that a text is as a value of this type; what is of another type, or malformed, is a string."""
    return _typed(text.strip(), type_) or quoted(text)


def _typed(text: str, type_: str | None) -> str | None:
    match type_:
        case "integer":
            return _integer(text)
        case "number":
            return text if len(text) <= _MAX_NUMBER and _NUMBER.fullmatch(text) else None
        case "boolean":
            # Some templates write Python's own spelling.
            return text.lower() if text.lower() in ("true", "false") else None
        case "null":
            return "null" if text.lower() in ("null", "none") else None
        case "object":
            return _container(text, dict)
        case "array":
            return _container(text, list)
        case _:
            return None


def _integer(text: str) -> str | None:
    if len(text) > _MAX_NUMBER or not _NUMBER.fullmatch(text):
        return None
    if _INTEGER.fullmatch(text):
        return text
    value = float(text)
    return str(int(value)) if value.is_integer() and abs(value) <= _EXACT else None


def _container(text: str, kind: type[Any]) -> str | None:
    """The text if it is of this kind, or becomes so once its open brackets are closed."""
    if _is(text, kind):
        return text
    closed = text + _open_brackets(text)
    return closed if closed != text and _is(closed, kind) else None


def _is(text: str, kind: type[Any]) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=_refuse), kind)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _open_brackets(text: str) -> str:
    """What would close the brackets that are open at the end of a text; nothing within a string."""
    stack: list[str] = []
    quoted_, at = False, 0
    while at < len(text):
        character = text[at]
        if character == "\\" and quoted_:
            at += 1
        elif character == '"':
            quoted_ = not quoted_
        elif not quoted_ and character in _CLOSING:
            stack.append(_CLOSING[character])
        elif not quoted_ and stack and character == stack[-1]:
            stack.pop()
        at += 1
    return "" if quoted_ else "".join(reversed(stack))

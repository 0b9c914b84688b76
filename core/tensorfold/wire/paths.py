"""Where in a JSON text a byte stands, for errors of syntax. Only used when there is an error to tell."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

__all__ = ["path_at"]

MAX_TRACED = 1 << 20
"""Errors behind so many bytes get no path."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}:,]', re.DOTALL)


@dataclass(slots=True)
class _Frame:
    """An open list or object."""

    index: int | None
    """The item in a list; None: this is an object."""
    key: str | None = None
    """The latest key of an object."""


def path_at(text: bytes, offset: int) -> str | None:
    """The path of the value in which a byte stands (`messages[2].content`); None: it is the whole text, or far behind.

    The text before `offset` is taken to be well formed; what is behind is not looked at.
    """
    if offset > MAX_TRACED:
        return None
    stack: list[_Frame] = []
    latest = b""
    for match in _TOKEN.finditer(text, 0, offset):
        token = match.group()
        frame = stack[-1] if stack else None
        match token:
            case b"[":
                stack.append(_Frame(index=0))
            case b"{":
                stack.append(_Frame(index=None))
            case b"]" | b"}":
                if stack:
                    stack.pop()
            case b":":
                if frame is not None:
                    frame.key = _spelled(latest)
            case b",":
                if frame is not None and frame.index is not None:
                    frame.index += 1
                elif frame is not None:
                    frame.key = None
            case _:
                latest = token
    return _joined(stack)


def _spelled(token: bytes) -> str:
    """A key as text; one that is no valid JSON string as it stands."""
    try:
        key: str = json.loads(token)
    except ValueError:
        key = token.strip(b'"').decode(errors="replace")
    return key.encode(errors="replace").decode()


def _joined(stack: list[_Frame]) -> str | None:
    path = ""
    for frame in stack:
        if frame.index is not None:
            path += f"[{frame.index}]"
        elif frame.key is not None:
            path += f".{frame.key}" if path else frame.key
    return path or None

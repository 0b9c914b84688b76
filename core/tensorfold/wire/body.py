"""Checks of a whole body before it is decoded. All work on bytes in C: 3 kB take about a microsecond."""

from __future__ import annotations

import codecs
import re
from itertools import accumulate

from tensorfold.errors import DecodeError
from tensorfold.wire.paths import path_at

__all__ = ["MAX_CONTAINERS", "MAX_DEPTH", "MAX_STRINGS", "MAX_VALUES", "check_body"]

MAX_DEPTH = 128
"""The deepest nesting of lists and objects; the decoder recurses on the C stack."""
MAX_VALUES = 2_000_000
"""The most separators (so the most values) in a body: a list of numbers takes 18 times its text in memory."""
MAX_STRINGS = 500_000
"""The most strings in a body, keys included."""
MAX_CONTAINERS = 500_000
"""The most lists and objects in a body."""

_SLICE = 1 << 20
_UNSTRUCTURAL = bytes(byte for byte in range(256) if byte not in b'"[]{},')
_STRING = re.compile(rb'"[^"]*"?')
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1, ord(","): 0}


def check_body(body: bytes) -> bytes:
    """The body without a UTF-8 byte-order mark.

    Raises:
        DecodeError: it is empty, not UTF-8, nested too deeply or holds too many values.
    """
    body = body.removeprefix(codecs.BOM_UTF8)
    if not body or body.isspace():
        raise DecodeError("the body is empty, and must be a JSON object")
    _check_text(body)
    _check_structure(body)
    return body


def _check_text(body: bytes) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    start = 0
    try:
        # In slices, for the decoded text of a large body may take four times its size.
        for start in range(0, len(body), _SLICE):
            decoder.decode(body[start : start + _SLICE], start + _SLICE >= len(body))
    except UnicodeDecodeError as error:
        offset = start + error.start
        problem = f"the body must be JSON in UTF-8, and byte {offset} is {error.object[error.start]:#04x}"
        raise DecodeError(problem, param=path_at(body, offset)) from None


def _check_structure(body: bytes) -> None:
    openings = body.count(b"[") + body.count(b"{")
    if openings <= MAX_DEPTH and body.count(b",") <= MAX_VALUES and body.count(b'"') <= 2 * MAX_STRINGS:
        return
    # A run of backslashes is shortened to its parity; then a quote after one is text.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body
    marks = plain.translate(None, delete=_UNSTRUCTURAL)
    strings = marks.count(b'"') // 2
    if strings > MAX_STRINGS:
        raise DecodeError(f"the body holds {strings:,} strings, and at most {MAX_STRINGS:,} are read")
    structure = _STRING.sub(b"", marks)
    values = structure.count(b",")
    if values > MAX_VALUES:
        raise DecodeError(f"the body holds {values:,} values, and at most {MAX_VALUES:,} are read")
    brackets = structure.replace(b",", b"")
    if (containers := brackets.count(b"[") + brackets.count(b"{")) > MAX_CONTAINERS:
        raise DecodeError(f"the body holds {containers:,} lists and objects, and at most {MAX_CONTAINERS:,} are read")
    depth = max(accumulate(map(_STEP.__getitem__, brackets)), default=0)
    if depth > MAX_DEPTH:
        raise DecodeError(f"the body is nested {depth:,} levels deep, and at most {MAX_DEPTH} are read")

"""Numbers as lenient as some APIs take them: a numeric string or an integral float counts as the number."""

from __future__ import annotations

import math
import re
from typing import Annotated, TypeAlias

import msgspec

from tensorfold.errors import DecodeError

__all__ = ["Int64", "LenientNumber", "lenient_float", "lenient_int"]

LenientNumber: TypeAlias = int | float | str | None
"""The wire type of such a field; booleans and everything else are refused while decoding."""
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""An integer that later arithmetic cannot be overwhelmed with."""

_NUMBER = re.compile(r"[+-]?(?:\d{1,400}\.?\d{0,400}|\.\d{1,400})(?:[eE][+-]?\d{1,5})?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,400}", re.ASCII)


def lenient_float(value: LenientNumber, field: str) -> float | None:
    """A finite number.

    Raises:
        DecodeError: a string that is no number, or a number past the range of a float.
    """
    if value is None:
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise DecodeError(f"{field} must be a number, and is {_shown(value)}", param=field)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise DecodeError(f"{field} must be a finite number", param=field)
    return number


def lenient_int(value: LenientNumber, field: str) -> int | None:
    """An integer of at most 64 bits, signed or not.

    Raises:
        DecodeError: a string that is no number, a number with a fraction, or one that is too large.
    """
    if value is None:
        return None
    if isinstance(value, int) or (isinstance(value, str) and _INTEGER.fullmatch(value)):
        number = int(value)
    else:
        fraction = lenient_float(value, field)
        if fraction is None or not fraction.is_integer():
            raise DecodeError(f"{field} must be an integer, and is {_shown(value)}", param=field)
        number = int(fraction)
    if not -(1 << 63) <= number < 1 << 64:
        raise DecodeError(f"{field} must be an integer of at most 64 bits", param=field)
    return number


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."

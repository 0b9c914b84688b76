"""Sets of characters, as ranges in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

__all__ = ["ANY", "DIGITS", "DOT", "SPACES", "WORDS", "CharSet", "charset", "inverted", "minus"]

CharSet: TypeAlias = tuple[tuple[int, int], ...]
"""First and last code point of each range: ascending, apart from each other, without surrogates."""

_LAST: Final = 0x10FFFF
_SURROGATES: Final = (0xD800, 0xDFFF)


def charset(ranges: Iterable[tuple[int, int]]) -> CharSet:
    """The set of everything in these ranges, in any order."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return _cut(joined, (_SURROGATES,))


def minus(one: CharSet, other: CharSet) -> CharSet:
    """What is in the one and not in the other."""
    return _cut(one, other)


def inverted(one: CharSet) -> CharSet:
    """Everything else."""
    return minus(ANY, one)


def _cut(ranges: Iterable[tuple[int, int]], holes: Iterable[tuple[int, int]]) -> CharSet:
    left = list(ranges)
    for begin, end in holes:
        parts: list[tuple[int, int]] = []
        for first, last in left:
            parts += (
                [(first, min(last, begin - 1)), (max(first, end + 1), last)]
                if first <= end and begin <= last
                else [(first, last)]
            )
        left = [(first, last) for first, last in parts if first <= last]
    return tuple(left)


ANY: Final[CharSet] = charset([(0, _LAST)])
DIGITS: Final[CharSet] = charset([(0x30, 0x39)])
WORDS: Final[CharSet] = charset([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
SPACES: Final[CharSet] = charset(
    [
        (0x09, 0x0D),
        (0x20, 0x20),
        (0xA0, 0xA0),
        (0x1680, 0x1680),
        (0x2000, 0x200A),
        (0x2028, 0x2029),
        (0x202F, 0x202F),
        (0x205F, 0x205F),
        (0x3000, 0x3000),
        (0xFEFF, 0xFEFF),
    ]
)
"""`\\s` of ECMA-262."""
DOT: Final[CharSet] = inverted(charset([(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)]))

"""Regular expressions of ECMA-262, read: those that describe a regular language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from tensorfold.chat.schemas.charsets import DIGITS, DOT, SPACES, WORDS, CharSet, charset, inverted

__all__ = ["Alternatives", "Anchor", "Characters", "Node", "PatternRefused", "Repeat", "Row", "read_pattern"]

MAX_PATTERN: Final = 4096
MAX_DEPTH: Final = 40
MAX_COUNT: Final = 256
"""The largest number in `{m,n}` behind a group."""
MAX_SINGLE: Final = 1_000_000
"""The same behind a single character or class."""
MAX_SIZE: Final = 20_000
"""Characters and classes of an expression with its counted groups written out."""

_CLASSES: Final = {
    "d": DIGITS,
    "D": inverted(DIGITS),
    "w": WORDS,
    "W": inverted(WORDS),
    "s": SPACES,
    "S": inverted(SPACES),
}
_CONTROLS: Final = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D, "0": 0x00}


class PatternRefused(Exception):
    """An expression that is malformed, or that is no regular language."""


@dataclass(frozen=True, slots=True)
class Characters:
    """One character of a set."""

    set: CharSet


@dataclass(frozen=True, slots=True)
class Anchor:
    """`^` or `$`."""

    start: bool


@dataclass(frozen=True, slots=True)
class Repeat:
    """A node so many times; `most` None: without bound."""

    node: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """Nodes one behind the other."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of several."""

    rows: tuple[Node, ...]


Node: TypeAlias = Characters | Anchor | Repeat | Row | Alternatives


def read_pattern(text: str) -> Node:
    """The expression.

    Raises:
        PatternRefused: it cannot be read, cannot be kept to, or would cost too much.
    """
    if len(text) > MAX_PATTERN:
        raise PatternRefused(f"an expression may have {MAX_PATTERN} characters, and this one has {len(text)}")
    reader = _Reader(text)
    node = reader.alternatives(0)
    if reader.at < len(text):
        raise PatternRefused("it closes a group that was not opened")
    if _size(node) > MAX_SIZE:
        raise PatternRefused("its counted groups, written out, are too long")
    return node


def _size(node: Node) -> int:
    match node:
        case Characters():
            return 1
        case Anchor():
            return 0
        case Repeat(Characters()):
            return 1
        case Repeat(inner, least, most):
            return _size(inner) * max(least, most or 1, 1)
        case Row(nodes) | Alternatives(nodes):
            return sum(map(_size, nodes))


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    @property
    def next(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        character = self.next
        if not character:
            raise PatternRefused("it ends too early")
        self.at += 1
        return character

    def took(self, text: str) -> bool:
        found = self.text.startswith(text, self.at)
        self.at += len(text) if found else 0
        return found

    # ---- structure -----------------------------------------------------------------------------------------

    def alternatives(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise PatternRefused("its groups are nested too deeply")
        rows = [self.row(depth)]
        while self.took("|"):
            rows.append(self.row(depth))
        return rows[0] if len(rows) == 1 else Alternatives(tuple(rows))

    def row(self, depth: int) -> Row:
        nodes: list[Node] = []
        while self.next not in ("", "|", ")"):
            nodes.append(self.quantified(self.atom(depth)))
        return Row(tuple(nodes))

    def atom(self, depth: int) -> Node:
        match self.take():
            case "^":
                return Anchor(start=True)
            case "$":
                return Anchor(start=False)
            case ".":
                return Characters(DOT)
            case "(":
                return self.group(depth)
            case "[":
                return Characters(self.char_class())
            case "\\":
                return Characters(self.escape(in_class=False))
            case "*" | "+" | "?" as mark:
                raise PatternRefused(f"there is nothing before {mark} to repeat")
            case character:
                return Characters(_single(ord(character)))

    def group(self, depth: int) -> Node:
        if self.took("?"):
            if self.took("=") or self.took("!") or self.took("<=") or self.took("<!"):
                raise PatternRefused("it looks ahead or behind, which cannot be enforced")
            if self.took("P="):
                raise PatternRefused("it refers back to a group, which cannot be enforced")
            # Python spells the name of a group with a P.
            if self.took("P<") or self.took("<"):
                while self.take() != ">":
                    pass
            elif not self.took(":"):
                raise PatternRefused("its flags cannot be enforced")
        node = self.alternatives(depth + 1)
        if not self.took(")"):
            raise PatternRefused("a group is not closed")
        return node

    def quantified(self, node: Node) -> Node:
        bounds = self.bounds()
        if bounds is None:
            return node
        if isinstance(node, Anchor):
            raise PatternRefused("it repeats ^ or $")
        least, most = bounds
        self.took("?")  # lazy or not, the language is the same
        if most is not None and most < least:
            raise PatternRefused(f"{{{least},{most}}} is out of order")
        limit = MAX_SINGLE if isinstance(node, Characters) else MAX_COUNT
        if max(least, most or 0) > limit:
            raise PatternRefused(f"it counts to {max(least, most or 0)}, and at most to {limit} is served there")
        return Repeat(node, least, most)

    def bounds(self) -> tuple[int, int | None] | None:
        match self.next:
            case "*":
                self.at += 1
                return 0, None
            case "+":
                self.at += 1
                return 1, None
            case "?":
                self.at += 1
                return 0, 1
            case "{":
                return self.counted()
            case _:
                return None

    def counted(self) -> tuple[int, int | None] | None:
        """`{m}`, `{m,}` or `{m,n}`; any other bracket is a character."""
        end = self.text.find("}", self.at)
        least, comma, most = self.text[self.at + 1 : end].partition(",") if end > 0 else ("", "", "")
        if not _is_count(least) or (most and not _is_count(most)):
            return None
        self.at = end + 1
        if not comma:
            return int(least), int(least)
        return int(least), int(most) if most else None

    # ---- characters ----------------------------------------------------------------------------------------

    def char_class(self) -> CharSet:
        negated = self.took("^")
        ranges: list[tuple[int, int]] = []
        while not self.took("]"):
            first = self.class_atom()
            if self.next == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                last = self.class_atom()
                if not (_is_single(first) and _is_single(last)) or last[0][0] < first[0][0]:
                    raise PatternRefused("a range of characters is out of order")
                ranges.append((first[0][0], last[0][0]))
            else:
                ranges += first
        found = charset(ranges)
        found = inverted(found) if negated else found
        if not found:
            raise PatternRefused("a class of characters is empty")
        return found

    def class_atom(self) -> CharSet:
        character = self.take()
        return self.escape(in_class=True) if character == "\\" else _single(ord(character))

    def escape(self, *, in_class: bool) -> CharSet:
        character = self.take()
        if character in _CLASSES:
            return _CLASSES[character]
        if character == "0" and self.next.isdigit():
            raise PatternRefused("octal escapes are not served")
        if character in _CONTROLS:
            return _single(_CONTROLS[character])
        if character == "b" and in_class:
            return _single(0x08)
        if character == "x":
            return _single(self.hexadecimal(2))
        if character == "u":
            return _single(self.unicode())
        if character.isdigit() or character == "k":
            raise PatternRefused("it refers back to a group, which cannot be enforced")
        if character.isalpha():
            raise PatternRefused(f"\\{character} cannot be enforced")
        return _single(ord(character))

    def unicode(self) -> int:
        if self.took("{"):
            digits = ""
            while (character := self.take()) != "}":
                digits += character
            return _code_point(digits)
        unit = self.hexadecimal(4)
        if 0xD800 <= unit < 0xDC00 and self.took("\\u"):
            low = self.hexadecimal(4)
            return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)
        return unit

    def hexadecimal(self, count: int) -> int:
        return _code_point("".join(self.take() for _ in range(count)))


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _is_single(found: CharSet) -> bool:
    return len(found) == 1 and found[0][0] == found[0][1]


def _single(code: int) -> CharSet:
    found = charset([(code, code)])
    if not found:
        raise PatternRefused("half of a surrogate pair is no character")
    return found


def _code_point(digits: str) -> int:
    try:
        code = int(digits, 16) if digits.isascii() and digits.isalnum() else -1
    except ValueError:
        code = -1
    if not 0 <= code <= 0x10FFFF:
        raise PatternRefused(f"{digits!r} is no code point")
    return code

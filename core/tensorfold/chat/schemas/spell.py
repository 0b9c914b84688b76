"""Expressions spelled as grammars, for texts as they are and for the inside of JSON strings."""

from __future__ import annotations

from typing import Final

from tensorfold.chat.schemas.charsets import ANY, CharSet, charset, minus
from tensorfold.chat.schemas.patterns import Alternatives, Anchor, Characters, Node, PatternRefused, Repeat, Row

__all__ = ["JSON_CHARACTER", "literal", "searched", "whole"]

JSON_CHARACTER: Final = (
    r'([^\0-\x1f"\\] | "\\" ["\\/bfnrt] | "\\u" ('
    r"[0-9A-Ca-cE-Fe-f] [0-9A-Fa-f] [0-9A-Fa-f] [0-9A-Fa-f] | [Dd] [0-7] [0-9A-Fa-f] [0-9A-Fa-f] | "
    r'[Dd] [89ABab] [0-9A-Fa-f] [0-9A-Fa-f] "\\u" [Dd] [C-Fc-f] [0-9A-Fa-f] [0-9A-Fa-f]))'
)
"""Any character within a JSON string, an escape counted as the one that it means."""

_ESCAPES: Final = {0x22: '\\"', 0x5C: "\\\\", 0x08: "\\b", 0x0C: "\\f", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
"""Characters that JSON strings spell otherwise, and how."""
_SPELLED: Final = charset([(0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C)])


def literal(text: str) -> str:
    """A text as a grammar's own literal."""
    return '"' + "".join(_in_literal(character) for character in text) + '"'


def _in_literal(character: str) -> str:
    code = ord(character)
    if character in '"\\':
        return "\\" + character
    return character if 0x20 <= code < 0x7F else f"\\U{code:08x}"


def whole(node: Node, *, json: bool) -> str:
    """The texts that match from their first character to their last."""
    return " | ".join(_spell(_unanchored(row), json) for row in _rows(node))


def searched(node: Node, *, json: bool) -> str:
    """The texts in which a match stands, wherever `^` and `$` do not say otherwise."""
    rest = f"{JSON_CHARACTER if json else _class(ANY)}*"
    spelled: list[str] = []
    for row in _rows(node):
        start, end = _is_anchor(row.nodes[:1], start=True), _is_anchor(row.nodes[-1:], start=False)
        inner = _spell(_unanchored(row), json)
        spelled.append(" ".join([*([] if start else [rest]), f"({inner})", *([] if end else [rest])]))
    return " | ".join(spelled)


def _rows(node: Node) -> list[Row]:
    """The alternatives of the whole expression, groups around all of it taken away."""
    match node:
        case Row((Row() | Alternatives() as inner,)):
            return _rows(inner)
        case Alternatives(rows):
            return [row for each in rows for row in _rows(each)]
        case Row():
            return [node]
        case _:
            return [Row((node,))]


def _is_anchor(nodes: tuple[Node, ...], *, start: bool) -> bool:
    return bool(nodes) and nodes[0] == Anchor(start)


def _unanchored(row: Row) -> Row:
    nodes = row.nodes
    while _is_anchor(nodes[:1], start=True):
        nodes = nodes[1:]
    while _is_anchor(nodes[-1:], start=False):
        nodes = nodes[:-1]
    return Row(nodes)


def _spell(node: Node, json: bool) -> str:
    match node:
        case Characters(found):
            return _in_json(found) if json else _class(found)
        case Row(nodes):
            return " ".join(_spell(each, json) for each in nodes) if nodes else '""'
        case Alternatives(rows):
            return "(" + " | ".join(_spell(row, json) for row in rows) + ")"
        case Repeat(inner, least, most):
            return f"({_spell(inner, json)}){_times(least, most)}"
        case Anchor():
            raise PatternRefused("^ and $ are served at its beginning and its end alone")


def _times(least: int, most: int | None) -> str:
    match least, most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
        case _, None:
            return f"{{{least},}}"
        case _:
            return f"{{{least},{most}}}"


def _in_json(found: CharSet) -> str:
    plain = minus(found, _SPELLED)
    parts = [_class(plain)] if plain else []
    escaped = minus(found, minus(ANY, _SPELLED))
    for first, last in escaped:
        for code in range(first, last + 1):
            parts.append(literal(_ESCAPES.get(code, f"\\u{code:04x}")))
    return parts[0] if len(parts) == 1 else f"({' | '.join(parts)})"


def _class(found: CharSet) -> str:
    if found == ANY:
        return "([^\\U0010ffff] | [\\U0010ffff])"
    return "[" + "".join(_range(first, last) for first, last in found) + "]"


def _range(first: int, last: int) -> str:
    return _code(first) if first == last else f"{_code(first)}-{_code(last)}"


def _code(code: int) -> str:
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\U{code:08x}"

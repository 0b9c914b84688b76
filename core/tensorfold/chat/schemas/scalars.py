"""Texts and numbers in the form that is kept to, and values that are given one by one."""

from __future__ import annotations

import math
from typing import Final

from tensorfold.chat.schemas.dates import DATE_FORMATS
from tensorfold.chat.schemas.keywords import FAMILIES, FORMATS, UNCHECKED_FORMATS, families_of
from tensorfold.chat.schemas.merge import Schema
from tensorfold.chat.schemas.patterns import PatternRefused, read_pattern
from tensorfold.chat.schemas.refusal import Empty, refused_keyword
from tensorfold.chat.schemas.spell import JSON_CHARACTER, searched
from tensorfold.ir import JSON

__all__ = ["Texts", "count", "enum_of", "number", "text"]

_EXACT: Final = 2**53


class Texts:
    """The texts with a length or a pattern, each a grammar of its own; the schema has a stand-in for it."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self.rules: dict[str, str] = {}
        """Stand-in to the grammar of the inside of a JSON string."""

    def stand_in(self, grammar: str) -> str:
        """The stand-in for such a text."""
        for name, known in self.rules.items():
            if known == grammar:
                return name
        name = f"{self._secret}{len(self.rules)}x"
        self.rules[name] = grammar
        return name

    def pattern(self, pattern: JSON, keyword: str, at: str) -> str:
        """The stand-in for texts in which this expression matches."""
        if not isinstance(pattern, str):
            raise refused_keyword(keyword, at, "it must be a text")
        try:
            return self.stand_in(searched(read_pattern(pattern), json=True))
        except PatternRefused as refusal:
            raise refused_keyword(keyword, at, f"{pattern[:200]!r}: {refusal}") from None

    def length(self, schema: Schema, at: str) -> str | None:
        """The stand-in for texts of these lengths; None: of any."""
        least, most = count(schema, "minLength", at) or 0, count(schema, "maxLength", at)
        if most is not None and most < least:
            raise Empty("maxLength", at)
        if least == 0 and most is None:
            return None
        return self.stand_in(f"{JSON_CHARACTER}{{{least},{'' if most is None else most}}}")


def count(schema: Schema, keyword: str, at: str) -> int | None:
    """A keyword that counts; None: it is not there."""
    value = schema.get(keyword)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != int(value):
        raise refused_keyword(keyword, at, "it must be an integer that is not negative")
    if value > _EXACT:
        raise refused_keyword(keyword, at, "it is too large")
    return int(value)


def text(schema: Schema, texts: Texts, at: str) -> JSON:
    """A schema of texts."""
    format = schema.get("format")
    if format in UNCHECKED_FORMATS:
        format = None
    length = texts.length(schema, at)
    said = [
        keyword
        for keyword, given in (("pattern", schema.get("pattern")), ("format", format), ("maxLength", length))
        if given is not None
    ]
    if len(said) > 1:
        other = next(name for name in ("maxLength", "minLength", "format") if name in schema and name != said[0])
        raise refused_keyword(other, at, f"beside {said[0]} it cannot be enforced")
    if format is not None:
        if format not in FORMATS:
            raise refused_keyword("format", at, f"{str(format)[:40]!r} cannot be enforced")
        if format in DATE_FORMATS:
            return {"const": texts.pattern(DATE_FORMATS[format], "format", at)}
        return {"type": "string", "format": format}
    if "pattern" in schema:
        return {"const": texts.pattern(schema["pattern"], "pattern", at)}
    return {"type": "string"} if length is None else {"const": length}


# ---- numbers -----------------------------------------------------------------------------------------------


def number(schema: Schema, type_: str, at: str) -> JSON:
    """A schema of numbers, or of integers."""
    bounds = _bounds(schema, at)
    multiple = schema.get("multipleOf")
    if type_ == "integer":
        bounds = _whole(bounds, at)
    _check_order(bounds, at)
    if multiple is not None and not (type_ == "integer" and multiple == 1):
        if type_ != "integer" or isinstance(multiple, bool) or not isinstance(multiple, int) or multiple < 1:
            raise refused_keyword("multipleOf", at, "it is served for integers, as a positive integer")
        if bounds:
            raise refused_keyword("multipleOf", at, f"beside {next(iter(bounds))} it cannot be enforced")
        return {"type": "integer", "multipleOf": multiple}
    return {"type": type_, **bounds}


def _bounds(schema: Schema, at: str) -> dict[str, JSON]:
    """The bounds as numbers; a true `exclusiveMinimum` of older schemas makes `minimum` exclusive."""
    bounds: dict[str, JSON] = {}
    for plain, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        given = {name: schema[name] for name in (plain, exclusive) if name in schema}
        if isinstance(given.get(exclusive), bool):
            given = {exclusive if given.pop(exclusive) else plain: given[plain]} if plain in given else {}
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise refused_keyword(name, at, "it must be a number")
            if abs(value) > _EXACT or (isinstance(value, float) and "e" in repr(value)):
                raise refused_keyword(name, at, f"{value} cannot be enforced")
            bounds[name] = value
        if len(given) == 2:
            bounds.pop(exclusive if _weaker(bounds, plain, exclusive) else plain)
    return bounds


def _weaker(bounds: dict[str, JSON], plain: str, exclusive: str) -> bool:
    """Whether the exclusive bound says nothing beside the plain one."""
    one, other = bounds[plain], bounds[exclusive]
    if not isinstance(one, int | float) or not isinstance(other, int | float):
        return False
    return one > other if plain == "minimum" else one < other


def _whole(bounds: dict[str, JSON], at: str) -> dict[str, JSON]:
    """The same bounds for integers, inclusive."""
    whole: dict[str, JSON] = {}
    for name, value in bounds.items():
        if not isinstance(value, int | float):
            continue
        match name:
            case "minimum":
                whole["minimum"] = math.ceil(value)
            case "exclusiveMinimum":
                whole["minimum"] = math.floor(value) + 1
            case "maximum":
                whole["maximum"] = math.floor(value)
            case _:
                whole["maximum"] = math.ceil(value) - 1
    return whole


def _check_order(bounds: dict[str, JSON], at: str) -> None:
    lows = [value for name, value in bounds.items() if "inimum" in name and isinstance(value, int | float)]
    highs = [value for name, value in bounds.items() if "aximum" in name and isinstance(value, int | float)]
    exclusive = any(name.startswith("exclusive") for name in bounds)
    if lows and highs and (lows[0] > highs[0] or (exclusive and lows[0] == highs[0])):
        raise Empty("maximum", at)


# ---- values ------------------------------------------------------------------------------------------------


def enum_of(schema: Schema, at: str) -> JSON:
    """A schema that gives its values, of which those are kept that its type takes.

    Raises:
        Empty: none is left.
        Unsupported: further keywords that would have to be looked at.
    """
    values = schema.get("enum", [schema.get("const")])
    if not isinstance(values, list):
        raise refused_keyword("enum", at, "it must be a list")
    if "const" in schema:
        values = [schema["const"]] if "enum" not in schema or schema["const"] in values else []
    given = schema.get("type")
    types = given if isinstance(given, list) else None if given is None else [given]
    kept: list[JSON] = [value for value in values if types is None or any(_is(value, each) for each in types)]
    if not kept:
        raise Empty("enum" if "enum" in schema else "const", at)
    for family in families_of(schema):
        if any(_is(value, family) for value in kept):
            name = next(keyword for keyword in schema if keyword in FAMILIES[family])
            raise refused_keyword(
                name, at, "beside values that are given one by one it is not looked at: leave those out"
            )
    return {"enum": kept}


def _is(value: JSON, type_: JSON) -> bool:
    match type_:
        case "string":
            return isinstance(value, str)
        case "integer":
            return not isinstance(value, bool) and isinstance(value, int | float) and value == int(value)
        case "number":
            return not isinstance(value, bool) and isinstance(value, int | float)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case _:
            return False

"""The intersection of two schemas: a value fits it when it fits both."""

from __future__ import annotations

import json
from typing import Final

from tensorfold.chat.schemas.keywords import TYPES, assertions
from tensorfold.chat.schemas.refusal import Empty, refused_keyword
from tensorfold.ir import JSON

__all__ = ["Schema", "merged"]

Schema = dict[str, JSON]

MAX_PRODUCT: Final = 64
"""Pairs of branches when both schemas have some."""

_LARGEST: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_SMALLEST: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")


def merged(one: Schema, other: Schema, at: str) -> Schema:
    """Both at once; neither has `$ref` or `allOf`.

    Raises:
        Empty: no value fits both.
        Unsupported: what both say of one thing cannot be put together.
    """
    result: Schema = dict(one)
    for keyword in (*(key for key in other if key not in one), *(key for key in other if key in one)):
        if keyword not in assertions(other):
            continue
        if keyword not in one or one[keyword] == other[keyword]:
            result[keyword] = other[keyword]
        else:
            result[keyword] = _both(keyword, one[keyword], other[keyword], at)
    if "properties" in one or "properties" in other:
        result["properties"] = _properties(one, other, at)
    return result


def _both(keyword: str, one: JSON, other: JSON, at: str) -> JSON:
    match keyword, one, other:
        case "type", _, _:
            return _types(one, other, at)
        case "enum", list(), list():
            kept: list[JSON] = [value for value in one if _spelled(value) in set(map(_spelled, other))]
            if not kept:
                raise Empty("enum", at)
            return kept
        case "const", _, _:
            raise Empty("const", at)
        case "required", list(), list():
            return [*one, *(name for name in other if name not in one)]
        case (("anyOf" | "oneOf"), list(), list()):
            return _product(keyword, one, other, at)
        case (("additionalProperties" | "items" | "propertyNames"), _, _):
            return _schemas(one, other, at)
        case "properties", _, _:
            return one
        case _ if keyword in (*_LARGEST, *_SMALLEST):
            return _bound(keyword, one, other, at)
        case "uniqueItems", bool(), bool():
            return one or other
        case _:
            raise refused_keyword(keyword, at, "it is said twice, in ways that cannot be put together")


def _bound(keyword: str, one: JSON, other: JSON, at: str) -> JSON:
    numbers = [each for each in (one, other) if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(numbers) < 2:
        raise refused_keyword(keyword, at, "it is said twice, in ways that cannot be put together")
    return max(numbers) if keyword in _LARGEST else min(numbers)


def _types(one: JSON, other: JSON, at: str) -> JSON:
    names = [_names(each) for each in (one, other)]
    kept: list[JSON] = [
        name
        for name in sorted(TYPES)
        if all(name in each or (name == "integer" and "number" in each) for each in names)
    ]
    if not kept:
        raise Empty("type", at)
    return kept[0] if len(kept) == 1 else kept


def _names(types: JSON) -> list[JSON]:
    return types if isinstance(types, list) else [types]


def _product(keyword: str, one: list[JSON], other: list[JSON], at: str) -> JSON:
    if keyword == "oneOf" or len(one) * len(other) > MAX_PRODUCT:
        raise refused_keyword(keyword, at, "it is said twice")
    pairs: list[JSON] = [{"allOf": [left, right]} for left in one for right in other]
    return pairs


def _schemas(one: JSON, other: JSON, at: str) -> JSON:
    if one is False or other is False:
        return False
    if one is True or other is True:
        return other if one is True else one
    return {"allOf": [one, other]}


def _properties(one: Schema, other: Schema, at: str) -> JSON:
    """Each property as both want it: a property that only one declares is an additional one to the other."""
    both: Schema = {}
    declared = [_declared(each) for each in (one, other)]
    for name in (*declared[0], *(name for name in declared[1] if name not in declared[0])):
        sides = [
            own[name] if name in own else _additional(schema, name, at)
            for own, schema in zip(declared, (one, other), strict=True)
        ]
        both[name] = _schemas(sides[0], sides[1], at) if sides[0] != sides[1] else sides[0]
    return both


def _declared(schema: Schema) -> Schema:
    properties = schema.get("properties", {})
    return properties if isinstance(properties, dict) else {}


def _additional(schema: Schema, name: str, at: str) -> JSON:
    if "patternProperties" in schema:
        raise refused_keyword("patternProperties", at, f"it cannot be put together with the property {name!r}")
    return schema.get("additionalProperties", True)


def _spelled(value: JSON) -> str:
    return json.dumps(value, sort_keys=True)

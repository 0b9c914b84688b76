"""Whether no value can fit two schemas, as far as that is plain to see."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations

from tensorfold.ir import JSON

__all__ = ["all_disjoint"]


def all_disjoint(schemas: Sequence[JSON]) -> bool:
    """Whether every value fits at most one of these normalised schemas."""
    return all(_disjoint(one, other) for one, other in combinations(schemas, 2))


def _disjoint(one: JSON, other: JSON) -> bool:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    if "anyOf" in one or "anyOf" in other:
        return all(_disjoint(left, right) for left in _branches(one) for right in _branches(other))
    types = _types(one), _types(other)
    if not (types[0] & types[1]):
        return True
    values = _values(one), _values(other)
    if values[0] is not None and values[1] is not None:
        return values[0].isdisjoint(values[1])
    return _tell_apart(one, other)


def _branches(schema: dict[str, JSON]) -> list[JSON]:
    branches = schema.get("anyOf")
    return branches if isinstance(branches, list) else [schema]


def _types(schema: dict[str, JSON]) -> frozenset[str]:
    """The JSON types of the values that fit; integers are numbers."""
    if isinstance(values := schema.get("enum"), list):
        return frozenset(map(_type_of, values))
    type_ = schema.get("type")
    if isinstance(type_, str):
        return frozenset({"number" if type_ == "integer" else type_})
    return frozenset({"string", "number", "boolean", "null", "object", "array"})


def _type_of(value: JSON) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"


def _values(schema: dict[str, JSON]) -> frozenset[str] | None:
    values = schema.get("enum")
    return frozenset(json.dumps(value, sort_keys=True) for value in values) if isinstance(values, list) else None


def _tell_apart(one: dict[str, JSON], other: dict[str, JSON]) -> bool:
    """Whether a property that both demand (a `kind`, say) is always another one."""
    return any(
        _disjoint(_property(one, name), _property(other, name)) for name in _required(one) if name in _required(other)
    )


def _required(schema: dict[str, JSON]) -> list[str]:
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _property(schema: dict[str, JSON], name: str) -> JSON:
    properties = schema.get("properties")
    return properties.get(name) if isinstance(properties, dict) else None

"""Keywords of JSON Schema by what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

__all__ = [
    "FAMILIES",
    "FORMATS",
    "NUMBERS",
    "REFUSED",
    "TYPES",
    "UNCHECKED_FORMATS",
    "TypeName",
    "assertions",
    "families_of",
]

TypeName: TypeAlias = Literal["string", "number", "integer", "boolean", "null", "object", "array"]

TYPES: Final[frozenset[str]] = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})

FAMILIES: Final[dict[str, frozenset[str]]] = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "object": frozenset(
        {
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "propertyNames",
            "minProperties",
            "maxProperties",
            "unevaluatedProperties",
        }
    ),
    "array": frozenset(
        {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "unevaluatedItems"}
    ),
}
"""Keywords that say something of values of one type alone."""
NUMBERS: Final = ("number", "integer")

REFUSED: Final = (
    "not",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "contains",
    "$dynamicRef",
    "$recursiveRef",
    "$anchor",
    "$dynamicAnchor",
)
"""Never kept to, and refused whatever their value."""

FORMATS: Final = frozenset(
    {"date-time", "date", "time", "email", "uuid", "ipv4", "ipv6", "uri", "hostname", "duration", "json-pointer"}
)
"""Kept to."""
UNCHECKED_FORMATS: Final = frozenset({"password", "byte", "binary"})
"""Those of OpenAPI that say how a text is shown or meant, and nothing of its characters."""

_CORE: Final = frozenset({"type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf", "if", "then", "else"})
_ASSERTIONS: Final = _CORE.union(REFUSED, *FAMILIES.values())


def assertions(schema: Mapping[str, object]) -> frozenset[str]:
    """The keywords of a schema that say which values fit; all others are comments (`title`, `default`, ...)."""
    return _ASSERTIONS.intersection(schema)


def families_of(schema: Mapping[str, object]) -> list[str]:
    """The types that a schema's keywords are about."""
    return [family for family, keywords in FAMILIES.items() if not keywords.isdisjoint(schema)]

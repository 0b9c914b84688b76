"""Whether a schema has a value that ends: one that demands itself within itself has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from tensorfold.ir import JSON

__all__ = ["has_finite_value"]


def has_finite_value(schema: JSON, definitions: Mapping[str, JSON]) -> bool:
    """Of a normalised schema, whose references are `#/$defs/NAME`."""
    ending: set[str] = set()
    while True:
        more = {name for name, each in definitions.items() if name not in ending and _ends(each, ending)}
        if not more:
            return _ends(schema, ending)
        ending |= more


def _ends(schema: JSON, ending: set[str]) -> bool:
    match schema:
        case {"$ref": str() as target}:
            return target.removeprefix("#/$defs/") in ending
        case {"anyOf": list() as branches}:
            return any(_ends(branch, ending) for branch in branches)
        case {"type": "object", "properties": dict() as properties, "required": list() as required}:
            return all(_ends(properties[name], ending) for name in required if isinstance(name, str))
        case {"type": "array", "minItems": int() as least}:
            return all(_ends(each, ending) for each in _first_items(cast("Mapping[str, JSON]", schema), least))
        case _:
            return True


def _first_items(schema: Mapping[str, JSON], count: int) -> list[JSON]:
    """The schemas that so many items have to fit, each once."""
    prefix = schema.get("prefixItems")
    items: list[JSON] = list(prefix[:count]) if isinstance(prefix, list) else []
    return items if len(items) >= count else [*items, schema.get("items", {})]

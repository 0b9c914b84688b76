"""What a form of a reply may cost: looked at before anything is done with it."""

from __future__ import annotations

from typing import Final

import msgspec

from tensorfold.chat.schemas.refusal import refused, step
from tensorfold.ir import JSON

__all__ = ["MAX_CHOICES", "MAX_GRAMMAR", "MAX_NODES", "MAX_STEPS", "check_size"]

MAX_BYTES: Final = 256 * 1024
"""Of a schema as JSON."""
MAX_VALUES: Final = 20_000
"""Of a schema, lists and objects included."""
MAX_DEPTH: Final = 120
"""Of lists and objects."""
MAX_ENUM: Final = 2000
MAX_BRANCHES: Final = 256
"""Of anyOf, oneOf and allOf."""
MAX_PROPERTIES: Final = 2000
MAX_NODES: Final = 3000
"""Schemas that are looked at, those included that come of merging."""
MAX_STEPS: Final = 240
"""How deep schemas may stand within each other once they are put together: two steps for each, one for each that is
combined. So deep Python's own stack reaches by far."""
MAX_CHOICES: Final = 2000
"""Texts of a choice."""
MAX_GRAMMAR: Final = 64 * 1024
"""Characters of a grammar that a request brings, and of a choice."""

_BRANCHES: Final = ("anyOf", "oneOf", "allOf")


def check_size(schema: JSON) -> None:
    """Refuse a schema that is too large, in any sense.

    Raises:
        Unsupported: naming what there is too much of, and where.
    """
    stack: list[tuple[JSON, str, int]] = [(schema, "#", 0)]
    values = 0
    while stack:
        value, at, depth = stack.pop()
        values += 1
        if values > MAX_VALUES:
            raise refused(f"the JSON schema holds more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise refused(f"the JSON schema is nested more than {MAX_DEPTH} levels deep, at {at[:200]}")
        match value:
            case dict():
                _check_counts(value, at)
                stack += [(each, step(at, key), depth + 1) for key, each in value.items()]
            case list():
                stack += [(each, step(at, place), depth + 1) for place, each in enumerate(value)]
            case _:
                pass
    size = len(msgspec.json.encode(schema))
    if size > MAX_BYTES:
        raise refused(f"the JSON schema has {size} bytes, and at most {MAX_BYTES} are served")


def _check_counts(schema: dict[str, JSON], at: str) -> None:
    for keyword, most in (("enum", MAX_ENUM), *((each, MAX_BRANCHES) for each in _BRANCHES)):
        items = schema.get(keyword)
        if isinstance(items, list) and len(items) > most:
            raise refused(f"{keyword} at {at} of the JSON schema has {len(items)} items, and at most {most} are served")
    properties = schema.get("properties")
    if isinstance(properties, dict) and len(properties) > MAX_PROPERTIES:
        raise refused(
            f"properties at {at} of the JSON schema has {len(properties)} entries, and at most {MAX_PROPERTIES} are served"
        )

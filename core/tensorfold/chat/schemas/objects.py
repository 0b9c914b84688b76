"""Objects in the form that is kept to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tensorfold.chat.schemas.merge import Schema
from tensorfold.chat.schemas.patterns import Alternatives, Anchor, Characters, Node, Repeat, Row, read_pattern
from tensorfold.chat.schemas.refusal import Empty, refused_keyword, step
from tensorfold.chat.schemas.scalars import Texts, count
from tensorfold.ir import JSON

__all__ = ["Inner", "object_of"]

Inner = Callable[[JSON, str], JSON]
"""Normalises a schema at a place."""

_NAME_KEYWORDS: Final = frozenset({"type", "pattern", "minLength", "maxLength", "enum", "const"})


def object_of(schema: Schema, texts: Texts, inner: Inner, at: str) -> JSON:
    """A schema of objects.

    Raises:
        Empty: no object fits.
        Unsupported: what cannot be kept to.
    """
    additional = _additional(schema, at)
    names = schema.get("propertyNames", True)
    patterns = _patterns(schema, at)
    if names is not True and names != {"type": "string"}:
        return _named(schema, names, additional, texts, inner, at)
    properties = _properties(schema, additional, patterns, inner, at)
    result: Schema = {"type": "object"}
    if properties:
        result["properties"] = properties
    if required := _required(schema, at):
        result["required"] = [*required]
    if patterns:
        result["patternProperties"] = _pattern_properties(patterns, properties, additional, texts, inner, at)
    if additional is False:
        result["additionalProperties"] = False
    elif additional is not True:
        result["additionalProperties"] = inner(additional, step(at, "additionalProperties"))
    return {**result, **_counts(schema, required, at)}


def _additional(schema: Schema, at: str) -> JSON:
    additional = schema.get("additionalProperties")
    unevaluated = schema.get("unevaluatedProperties")
    if unevaluated is not None and unevaluated is not True:
        # Nothing but the properties beside it evaluates any: combinations were resolved before.
        if additional is None:
            additional = unevaluated
        elif additional is not False:
            raise refused_keyword("unevaluatedProperties", at)
    if additional in (None, {}):
        return True
    if not isinstance(additional, dict | bool):
        raise refused_keyword("additionalProperties", at, "it must be a schema")
    return additional


def _counts(schema: Schema, required: list[str], at: str) -> Schema:
    least, most = count(schema, "minProperties", at) or 0, count(schema, "maxProperties", at)
    if most is not None and (most < least or most < len(required)):
        raise Empty("maxProperties", at)
    if (least > len(required) or most is not None) and schema.get("patternProperties"):
        raise refused_keyword(
            "minProperties" if least else "maxProperties", at, "beside patternProperties it is not enforced"
        )
    counts: Schema = {}
    if least > len(required):
        counts["minProperties"] = least
    if most is not None:
        counts["maxProperties"] = most
    return counts


def _required(schema: Schema, at: str) -> list[str]:
    required = schema.get("required", [])
    # Older schemas mark a property itself.
    if isinstance(required, bool):
        raise refused_keyword("required", at, "it must be a list of names")
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise refused_keyword("required", at, "it must be a list of names")
    return [name for name in dict.fromkeys(required) if isinstance(name, str)]


def _properties(schema: Schema, additional: JSON, patterns: dict[str, JSON], inner: Inner, at: str) -> Schema:
    declared = schema.get("properties", {})
    if not isinstance(declared, dict):
        raise refused_keyword("properties", at, "it must be an object")
    required = _required(schema, at)
    properties: Schema = {}
    for name, each in declared.items():
        try:
            properties[name] = inner(each, step(at, "properties", name))
        except Empty as empty:
            if name in required:
                raise Empty(empty.keyword, empty.at) from None
            if additional is not False:
                raise refused_keyword(
                    "properties", at, f"{name!r} may never be there, which cannot be enforced"
                ) from None
    for name in required:
        if name not in properties:
            if patterns:
                raise refused_keyword("required", at, f"{name!r} is not among the properties")
            if additional is False:
                raise Empty("required", at)
            properties[name] = inner(additional, step(at, "additionalProperties"))
    return properties


# ---- names -------------------------------------------------------------------------------------------------


def _named(schema: Schema, names: JSON, additional: JSON, texts: Texts, inner: Inner, at: str) -> JSON:
    """Objects whose names keep to a schema."""
    place = step(at, "propertyNames")
    if not isinstance(names, dict) or not _NAME_KEYWORDS.issuperset(names) or names.get("type", "string") != "string":
        raise refused_keyword("propertyNames", at, "a pattern, a length or a list of names is served there")
    if schema.get("properties") or schema.get("patternProperties") or schema.get("required"):
        raise refused_keyword("propertyNames", at, "beside properties it cannot be enforced")
    if "enum" in names or "const" in names:
        given = names.get("enum", [names.get("const")])
        if len(names.keys() - {"type"}) > 1 or not isinstance(given, list):
            raise refused_keyword("propertyNames", at, "a list of names stands alone")
        own: Schema = {str(name): additional for name in given if isinstance(name, str)}
        rest = {key: value for key, value in schema.items() if key != "propertyNames"}
        return object_of({**rest, "properties": own, "additionalProperties": False}, texts, inner, at)
    said = [keyword for keyword in ("pattern", "minLength", "maxLength") if keyword in names]
    if "pattern" in names and len(said) > 1:
        raise refused_keyword(said[1], place, "beside pattern it cannot be enforced")
    rule = texts.pattern(names["pattern"], "pattern", place) if "pattern" in names else texts.length(names, place)
    if additional is False:
        return {"type": "object", "additionalProperties": False, **_counts(schema, [], at)}
    result: Schema = {"type": "object"}
    if rule is not None:
        result["propertyNames"] = {"pattern": f"^{rule}$"}
    if additional is not True:
        result["additionalProperties"] = inner(additional, step(at, "additionalProperties"))
    return {**result, **_counts(schema, [], at)}


def _patterns(schema: Schema, at: str) -> dict[str, JSON]:
    """The patterns that say anything."""
    given = schema.get("patternProperties", {})
    if not isinstance(given, dict):
        raise refused_keyword("patternProperties", at, "it must be an object")
    return {pattern: each for pattern, each in given.items() if each is not True and each != {}} or (
        given if schema.get("additionalProperties") is False else {}
    )


def _pattern_properties(
    patterns: dict[str, JSON], properties: Schema, additional: JSON, texts: Texts, inner: Inner, at: str
) -> Schema:
    """One pattern, whose names no property has, and no other names."""
    if additional is not False:
        raise refused_keyword("patternProperties", at, "it is served beside additionalProperties: false")
    if len(patterns) > 1:
        raise refused_keyword("patternProperties", at, "one pattern is served, for a name may match several")
    ((pattern, each),) = patterns.items()
    place = step(at, "patternProperties", pattern)
    rule = texts.pattern(pattern, "patternProperties", at)
    beginning = _beginning(read_pattern(pattern))
    if any(not beginning or name.startswith(beginning) for name in properties):
        raise refused_keyword("patternProperties", at, "a property may match the pattern too")
    return {f"^{rule}$": inner(each, place)}


def _beginning(node: Node) -> str:
    """What every match of an anchored expression begins with, as far as that is plain to see."""
    if not isinstance(node, Row) or node.nodes[:1] != (Anchor(start=True),):
        return ""
    text = ""
    for each in node.nodes[1:]:
        match each:
            case Characters(((first, last),)) if first == last:
                text += chr(first)
            case Characters() | Anchor() | Repeat() | Row() | Alternatives():
                break
    return text

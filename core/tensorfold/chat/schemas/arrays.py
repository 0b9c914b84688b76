"""Lists in the form that is kept to."""

from __future__ import annotations

from tensorfold.chat.schemas.merge import Schema
from tensorfold.chat.schemas.objects import Inner
from tensorfold.chat.schemas.refusal import Empty, refused_keyword, step
from tensorfold.chat.schemas.scalars import count
from tensorfold.ir import JSON

__all__ = ["array_of"]


def array_of(schema: Schema, inner: Inner, at: str) -> JSON:
    """A schema of lists.

    Raises:
        Empty: no list fits.
        Unsupported: what cannot be kept to.
    """
    least, most = count(schema, "minItems", at) or 0, count(schema, "maxItems", at)
    prefix, rest = _items(schema, at)
    first: list[JSON] = []
    for place, each in enumerate(prefix):
        try:
            first.append(inner(each, step(at, "prefixItems", place)))
        except Empty:
            # A list may end before it.
            most = place if most is None else min(most, place)
            break
    items = _rest(rest, inner, at)
    if items is False:
        most = len(first) if most is None else min(most, len(first))
    if most is not None and most < least:
        raise Empty("maxItems", at)
    if schema.get("uniqueItems") not in (None, False) and (most is None or most > 1):
        raise refused_keyword("uniqueItems", at)
    if most is not None:
        first = first[:most]
    result: Schema = {"type": "array"}
    if first:
        result["prefixItems"] = first
    if items is False or (first and most == len(first)):
        result["items"] = False
        if not first:
            return {"type": "array", "maxItems": 0}
    elif items is not True:
        result["items"] = items
    if least:
        result["minItems"] = least
    if most is not None and not (result.get("items") is False):
        result["maxItems"] = most
    return result


def _items(schema: Schema, at: str) -> tuple[list[JSON], JSON]:
    """The schemas of the first items, and that of all others; older schemas have both under other names."""
    prefix, items = schema.get("prefixItems", []), schema.get("items", True)
    if isinstance(items, list):
        prefix, items = items, schema.get("additionalItems", True)
    unevaluated = schema.get("unevaluatedItems")
    if unevaluated not in (None, True):
        if items is True:
            items = unevaluated
        elif items is not False:
            raise refused_keyword("unevaluatedItems", at)
    if not isinstance(prefix, list):
        raise refused_keyword("prefixItems", at, "it must be a list of schemas")
    return prefix, items


def _rest(items: JSON, inner: Inner, at: str) -> JSON:
    if items in (True, {}):
        return True
    try:
        return inner(items, step(at, "items"))
    except Empty:
        return False

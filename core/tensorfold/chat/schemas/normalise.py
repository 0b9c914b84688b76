"""A schema in the form that the grammar library keeps to exactly, or a refusal that names the keyword and its place."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote

import msgspec

from tensorfold.chat.schemas.arrays import array_of
from tensorfold.chat.schemas.disjoint import all_disjoint
from tensorfold.chat.schemas.finite import has_finite_value
from tensorfold.chat.schemas.keywords import FAMILIES, NUMBERS, REFUSED, TYPES, assertions, families_of
from tensorfold.chat.schemas.limits import MAX_NODES, MAX_STEPS, check_size
from tensorfold.chat.schemas.merge import Schema, merged
from tensorfold.chat.schemas.objects import object_of
from tensorfold.chat.schemas.refusal import Empty, refused, refused_keyword, step
from tensorfold.chat.schemas.scalars import Texts, enum_of, number, text
from tensorfold.errors import Unsupported
from tensorfold.ir import JSON

__all__ = ["Normalised", "normalise"]

_BRANCHES: Final = ("anyOf", "oneOf")
_COMBINING: Final = ("$ref", "allOf")
_SHALLOW: Final = 20
"""Steps behind which it is looked for circles."""


class Normalised:
    """A schema whose texts of a length or a pattern are stand-ins."""

    def __init__(self, schema: JSON, rules: dict[str, str]) -> None:
        self.schema = schema
        self.rules = rules
        """Stand-in to the grammar of the inside of a JSON string."""


def normalise(schema: JSON) -> Normalised:
    """The schema as it is enforced.

    Raises:
        Unsupported: it is too large, no value fits it, or something of it cannot be kept to.
    """
    check_size(schema)
    work = _Work(schema)
    try:
        root = work.of(schema, "#")
    except Empty as empty:
        raise _unfitting(empty) from None
    definitions = work.definitions()
    if not has_finite_value(root, definitions):
        raise refused("the JSON schema demands itself within itself without end: no value fits it")
    if definitions and isinstance(root, dict):
        root["$defs"] = definitions
    return Normalised(root, work.texts.rules)


def _unfitting(empty: Empty) -> Unsupported:
    return refused(f"{empty.keyword} at {empty.at} of the JSON schema leaves no value that fits")


class _Work:
    """One schema's normalisation."""

    def __init__(self, root: JSON) -> None:
        self.texts = Texts(f"tf{secrets.token_hex(8)}x")
        self._root = root
        self._names: dict[str, str] = {}
        """Reference to the name of its definition."""
        self._done: dict[str, JSON] = {}
        self._open: dict[bytes, str | None] = {}
        """What is put together right now, and the name under which it is met again within itself."""
        self._circles: dict[str, Schema] = {}
        """What these names are of, before it is normalised."""
        self._nodes = 0
        self._depth = 0

    def definitions(self) -> dict[str, JSON]:
        """Everything that is referred to, and what that refers to."""
        while any(name not in self._done for name in self._names.values()):
            for target, name in list(self._names.items()):
                if name not in self._done:
                    try:
                        self._done[name] = self.of(self._target(target, target), target)
                    except Empty as empty:
                        raise _unfitting(empty) from None
        return dict(self._done)

    def of(self, schema: JSON, at: str) -> JSON:
        """One schema, at its place.

        Raises:
            Empty: no value fits it.
            Unsupported: something of it cannot be kept to.
        """
        self._count()
        if schema is True:
            return {}
        if schema is False:
            raise Empty("false", at)
        if not isinstance(schema, dict):
            raise refused(f"what stands at {at} of the JSON schema is no schema: it must be an object, true or false")
        self._refused(schema, at)
        said = assertions(schema)
        if said == frozenset({"$ref"}):
            return self._reference(schema["$ref"], at)
        with self._deeper(2, at):
            flat = self._flat(schema, at, ())
            return self._combined(flat, at) if any(key in schema for key in _COMBINING) else self._one(flat, at)

    def _one(self, flat: Schema, at: str) -> JSON:
        for keyword in _BRANCHES:
            if keyword in flat:
                return self._branches(flat, keyword, at)
        return self._leaf(flat, at)

    def _combined(self, flat: Schema, at: str) -> JSON:
        """What is put together has no place of its own: met again within itself, it becomes a definition."""
        if self._depth < _SHALLOW:
            return self._one(flat, at)
        key = msgspec.json.encode(flat)
        if key in self._open:
            circle = self._open[key] or f"c{len(self._circles)}"
            self._open[key], self._circles[circle] = circle, flat
            return {"$ref": f"#/$defs/{circle}"}
        self._open[key] = None
        try:
            found = self._one(flat, at)
        finally:
            name = self._open.pop(key)
        if name is None:
            return found
        self._done[name] = found
        return {"$ref": f"#/$defs/{name}"}

    @contextmanager
    def _deeper(self, steps: int, at: str) -> Generator[None]:
        self._depth += steps
        if self._depth > MAX_STEPS:
            raise refused(f"the JSON schema is nested too deep once what it combines is put together, at {at[:200]}")
        try:
            yield
        finally:
            self._depth -= steps

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise refused(
                f"the JSON schema comes to more than {MAX_NODES} schemas once what it combines is put together"
            )

    def _refused(self, schema: Schema, at: str) -> None:
        for keyword in REFUSED:
            if keyword in schema:
                raise refused_keyword(keyword, at)
        if "if" in schema and ("then" in schema or "else" in schema):
            raise refused_keyword("if", at)

    # ---- references and combinations -----------------------------------------------------------------------

    def _reference(self, target: JSON, at: str) -> JSON:
        name = self._names.setdefault(self._pointer(target, at), f"d{len(self._names)}")
        self._target(self._pointer(target, at), at)
        return {"$ref": f"#/$defs/{name}"}

    def _pointer(self, target: JSON, at: str) -> str:
        if not isinstance(target, str) or not (target == "#" or target.startswith("#/")):
            raise refused_keyword(
                "$ref", at, f"{str(target)[:100]!r} is no place within the schema, such as #/$defs/NAME"
            )
        return target

    def _target(self, pointer: str, at: str) -> JSON:
        value = self._root
        for part in pointer.split("/")[1:]:
            key = _name(unquote(part))
            if isinstance(value, dict) and key not in value:
                key = _name(part)  # many write a name as it is, which the standard would have escaped
            match value:
                case dict() if key in value:
                    value = value[key]
                case list() if key.isascii() and key.isdigit() and int(key) < len(value):
                    value = value[int(key)]
                case _:
                    raise refused_keyword("$ref", at, f"there is nothing at {pointer[:100]!r}")
        return value

    def _flat(self, schema: JSON, at: str, seen: tuple[str, ...]) -> Schema:
        """The schema with what it refers to and combines by allOf put together."""
        self._count()
        if schema is True:
            return {}
        if schema is False:
            raise Empty("false", at)
        if not isinstance(schema, dict):
            raise refused(f"what stands at {at} of the JSON schema is no schema: it must be an object, true or false")
        self._refused(schema, at)
        own: Schema = {keyword: schema[keyword] for keyword in schema if keyword not in _COMBINING}
        # Properties are written in the order in which they are declared.
        first = next((keyword for keyword in schema if keyword in (*_COMBINING, "properties")), None)
        result: Schema = own if first == "properties" else {}
        with self._deeper(1, at):
            if "$ref" in schema:
                result = merged(result, self._referred(schema["$ref"], at, seen), at)
            if "allOf" in schema:
                result = self._all_of(result, schema["allOf"], at, seen)
        return result if first == "properties" else merged(result, own, at)

    def _referred(self, target: JSON, at: str, seen: tuple[str, ...]) -> Schema:
        pointer = self._pointer(target, at)
        if pointer in seen:
            raise refused_keyword("$ref", at, f"{pointer!r} refers to itself")
        return self._flat(self._target(pointer, at), pointer, (*seen, pointer))

    def _all_of(self, result: Schema, parts: JSON, at: str, seen: tuple[str, ...]) -> Schema:
        if not isinstance(parts, list):
            raise refused_keyword("allOf", at, "it must be a list of schemas")
        for place, part in enumerate(parts):
            result = merged(result, self._flat(part, step(at, "allOf", place), seen), at)
        return result

    def _branches(self, schema: Schema, keyword: str, at: str) -> JSON:
        """One of several schemas, each with all that stands beside them."""
        branches = schema[keyword]
        if not isinstance(branches, list) or not branches:
            raise refused_keyword(keyword, at, "it must be a list of schemas")
        rest = {key: value for key, value in schema.items() if key != keyword}
        beside = bool(assertions(rest))
        found: list[JSON] = []
        for place, branch in enumerate(branches):
            where = step(at, keyword, place)
            try:
                found.append(self.of({"allOf": [rest, branch]} if beside else branch, where))
            except Empty:
                continue
        if not found:
            raise Empty(keyword, at)
        if keyword == "oneOf" and not all_disjoint(list(map(self._resolved, found))):
            raise refused_keyword(
                "oneOf", at, "a value may fit several of its schemas: use anyOf, or give each a const"
            )
        return found[0] if len(found) == 1 else {"anyOf": found}

    def _resolved(self, schema: JSON) -> JSON:
        """What a normalised schema refers to, where that is no circle."""
        match schema:
            case {"$ref": str() as reference}:
                flat = self._flat_of(reference.removeprefix("#/$defs/"))
                return {} if any(keyword in flat for keyword in _BRANCHES) else _constants(flat)
            case _:
                return schema

    def _flat_of(self, definition: str) -> Schema:
        if (circle := self._circles.get(definition)) is not None:
            return circle
        target = next(key for key, name in self._names.items() if name == definition)
        return self._flat(self._target(target, target), target, (target,))

    # ---- one type ------------------------------------------------------------------------------------------

    def _leaf(self, schema: Schema, at: str) -> JSON:
        if "enum" in schema or "const" in schema:
            return enum_of(schema, at)
        types = self._types(schema, at)
        if not types:
            return {}
        found: list[JSON] = []
        for type_ in types:
            try:
                found.append(self._typed(schema, type_, at))
            except Empty:
                if len(types) == 1:
                    raise
        if not found:
            raise Empty("type", at)
        return found[0] if len(found) == 1 else {"anyOf": found}

    def _types(self, schema: Schema, at: str) -> list[str]:
        given = schema.get("type")
        if given is None:
            families = families_of(schema)
            if len(families) > 1:
                words = " and ".join(next(key for key in schema if key in FAMILIES[each]) for each in families[:2])
                raise refused_keyword("type", at, f"it is missing, and {words} are about different types")
            return families
        names = given if isinstance(given, list) else [given]
        for name in names:
            if not isinstance(name, str) or name not in TYPES:
                raise refused_keyword("type", at, f"{str(name)[:40]!r} is no type")
        if not names:
            raise Empty("type", at)
        types = list(dict.fromkeys(str(name) for name in names))
        return [name for name in types if not (name == "integer" and "number" in types)]

    def _typed(self, schema: Schema, type_: str, at: str) -> JSON:
        """The values of one type; keywords of other types say nothing of them."""
        match type_:
            case "string":
                return text(schema, self.texts, at)
            case "object":
                return object_of(schema, self.texts, self.of, at)
            case "array":
                return array_of(schema, self.of, at)
            case _ if type_ in NUMBERS:
                return number(schema, type_, at)
            case _:
                return {"type": type_}


def _name(part: str) -> str:
    """A part of a JSON pointer as it is spelled in the schema."""
    return part.replace("~1", "/").replace("~0", "~")


def _constants(schema: Schema) -> JSON:
    """A flat schema with `const` written as the other schemas have it, for comparing."""
    properties = schema.get("properties")
    told: Schema = dict(schema)
    if "const" in schema:
        told["enum"] = [schema["const"]]
    if isinstance(properties, dict):
        told["properties"] = {
            name: _constants(each) if isinstance(each, dict) else each for name, each in properties.items()
        }
    return told

"""What binds the form of a reply."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tensorfold.ir.json_value import JSON

__all__ = ["Choice", "Ebnf", "Grammar", "JsonObject", "JsonSchema", "Regex"]


class JsonSchema(msgspec.Struct, frozen=True, tag="json_schema"):
    """The reply is a JSON value of this schema."""

    schema: dict[str, JSON] | bool


class JsonObject(msgspec.Struct, frozen=True, tag="json_object"):
    """The reply is any JSON object."""


class Regex(msgspec.Struct, frozen=True, tag="regex"):
    """The whole reply matches this expression."""

    pattern: str


class Ebnf(msgspec.Struct, frozen=True, tag="ebnf"):
    """The whole reply is derived from rule `root`."""

    text: str


class Choice(msgspec.Struct, frozen=True, tag="choice"):
    """The reply is one of these texts."""

    texts: tuple[str, ...]


Grammar: TypeAlias = JsonSchema | JsonObject | Regex | Ebnf | Choice

"""The fields that bind a reply's form, as OpenAI and vLLM spell them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from tensorfold.errors import DecodeError, InvalidRequest, Unsupported
from tensorfold.ir import JSON, Choice, Ebnf, Grammar, JsonObject, JsonSchema, Regex
from tensorfold.wire.values import decode_value

__all__ = ["GrammarFields", "grammar_field", "read_grammar"]

Schema: TypeAlias = dict[str, JSON] | bool | str
"""A schema, or its text."""

_SCHEMA: msgspec.json.Decoder[dict[str, JSON] | bool] = msgspec.json.Decoder(dict[str, JSON] | bool)


class WireSchema(msgspec.Struct):
    """`response_format.json_schema`. Name, description and strict change nothing: every schema is kept to."""

    schema: Schema | None = None


class WireFormat(msgspec.Struct):
    """`response_format`."""

    type: str
    json_schema: WireSchema | None = None
    schema: Schema | None = None
    """Where llama.cpp's clients put it."""


class WireStructured(msgspec.Struct):
    """`structured_outputs`: one of them."""

    json: Schema | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    structural_tag: JSON = None
    whitespace_pattern: JSON = None
    disable_any_whitespace: JSON = None
    disable_additional_properties: JSON = None
    """These four of vLLM's would bind a reply otherwise than the server can: false and null alone pass."""


class GrammarFields(msgspec.Struct):
    """The fields; null means left out, and at most one of them is given."""

    response_format: WireFormat | None = None
    guided_json: Schema | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    """EBNF, whose first rule is called `root`."""
    structured_outputs: WireStructured | None = None


def read_grammar(fields: GrammarFields) -> Grammar | None:
    """What the reply has to be; None: free text.

    Raises:
        DecodeError: a field is malformed.
        InvalidRequest: two fields say something.
        Unsupported: a field asks for a form that is not served.
    """
    _check_structured(fields.structured_outputs or WireStructured())
    found = list(_given(fields))
    if len(found) > 1:
        names = " and ".join(name for name, _ in found[:2])
        raise InvalidRequest(f"{names} both bind the reply's form: give one of them", param=found[1][0])
    return found[0][1] if found else None


def grammar_field(fields: GrammarFields) -> str | None:
    """The field that binds the reply's form, of fields that `read_grammar` has read; None: none does."""
    return next((name for name, _ in _given(fields)), None)


def _given(fields: GrammarFields) -> Iterator[tuple[str, Grammar]]:
    if fields.response_format is not None:
        grammar = _format(fields.response_format)
        if grammar is not None:
            yield "response_format", grammar
    structured = fields.structured_outputs or WireStructured()
    for at, schema in (("guided_json", fields.guided_json), ("structured_outputs.json", structured.json)):
        if schema is not None:
            yield at, JsonSchema(_schema(schema, at))
    if structured.json_object:
        yield "structured_outputs.json_object", JsonObject()
    for at, pattern in (("guided_regex", fields.guided_regex), ("structured_outputs.regex", structured.regex)):
        if pattern is not None:
            yield at, Regex(pattern)
    for at, texts in (("guided_choice", fields.guided_choice), ("structured_outputs.choice", structured.choice)):
        if texts is not None:
            if not texts:
                raise DecodeError(f"{at} is an empty list, and no reply is one of its texts", param=at)
            yield at, Choice(tuple(texts))
    for at, text in (("guided_grammar", fields.guided_grammar), ("structured_outputs.grammar", structured.grammar)):
        if text is not None:
            yield at, Ebnf(text)


def _check_structured(structured: WireStructured) -> None:
    for name in ("structural_tag", "whitespace_pattern", "disable_any_whitespace", "disable_additional_properties"):
        if getattr(structured, name) not in (None, False):
            at = f"structured_outputs.{name}"
            raise Unsupported(f"{at} is not served here: leave it out", param=at, code="unsupported_value")


def _format(format: WireFormat) -> Grammar | None:
    match format.type:
        case "text":
            return None
        case "json_object":
            own = format.schema
            return JsonObject() if own is None else JsonSchema(_schema(own, "response_format.schema"))
        case "json_schema":
            given = format.json_schema.schema if format.json_schema is not None else format.schema
            at = "response_format.json_schema.schema"
            if given is None:
                raise DecodeError(f"{at} is missing", param=at)
            return JsonSchema(_schema(given, at))
        case other:
            raise DecodeError(
                f"response_format.type is {other[:40]!r}, and must be text, json_object or json_schema",
                param="response_format.type",
            )


def _schema(schema: Schema, at: str) -> dict[str, JSON] | bool:
    if not isinstance(schema, str):
        return schema
    value: dict[str, JSON] | bool = decode_value(_SCHEMA, schema.encode(), at)
    return value

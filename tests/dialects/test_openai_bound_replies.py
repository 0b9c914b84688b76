"""What binds a reply and what ends it, as the OpenAI dialect reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.ir import Choice, Ebnf, JsonObject, JsonSchema, Limits, Regex

from .openai_requests import BOTH, SCHEMA, refused, request


@pytest.mark.requirement("T-105", "T-199", "T-200", "T-201")
@BOTH
@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": None, "guided_json": None, "structured_outputs": {}}, None),
        ({"response_format": {"type": "json_object"}}, JsonObject()),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}, SCHEMA),
        ({"guided_json": SCHEMA}, SCHEMA),
        ({"guided_json": json.dumps(SCHEMA)}, SCHEMA),
        ({"guided_json": True}, JsonSchema(True)),
        ({"guided_regex": "a+"}, Regex("a+")),
        ({"guided_choice": ["a", "b"]}, Choice(("a", "b"))),
        ({"guided_grammar": 'root ::= "a"'}, Ebnf('root ::= "a"')),
        ({"structured_outputs": {"json": SCHEMA}}, SCHEMA),
        ({"structured_outputs": {"json_object": True}}, JsonObject()),
        ({"structured_outputs": {"regex": "a+"}}, Regex("a+")),
        ({"structured_outputs": {"choice": ["a"]}}, Choice(("a",))),
        ({"structured_outputs": {"grammar": "root ::= [a]"}}, Ebnf("root ::= [a]")),
    ],
)
def test_six_fields_bind_a_reply(path: str, base: dict[str, Any], fields: dict[str, Any], grammar: Any) -> None:
    """A schema, any JSON object, an expression, a choice or a grammar; keys stay in the schema's order."""
    expected = JsonSchema(grammar) if isinstance(grammar, dict) else grammar
    found = request(path, **fields).grammar
    assert found == expected
    if isinstance(found, JsonSchema) and isinstance(found.schema, dict):
        assert json.dumps(found.schema) == json.dumps(SCHEMA)


@pytest.mark.requirement("T-213")
@BOTH
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": 42}}},
            "response_format.json_schema.schema",
        ),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": "[]"}, "guided_json"),
        ({"guided_regex": 5}, "guided_regex"),
        ({"guided_choice": "a"}, "guided_choice"),
        ({"guided_choice": [1]}, "guided_choice[0]"),
        ({"structured_outputs": {"choice": "a"}}, "structured_outputs.choice"),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice"),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
            "structured_outputs.regex",
        ),
    ],
)
def test_a_malformed_field_is_refused_with_its_place(
    path: str, base: dict[str, Any], fields: dict[str, Any], param: str
) -> None:
    """Also two that contradict each other."""
    assert refused(path, **fields).param == param


@pytest.mark.requirement("Y-023", "Y-027", "Y-031")
@BOTH
def test_loop_detection_is_switched_by_either_name(path: str, base: dict[str, Any]) -> None:
    """Of `loop_detect_window` only 0 is off; its size does nothing."""
    assert request(path).limits == Limits()
    for fields, wanted in (
        ({"loop_detect": False}, False),
        ({"loop_detect": True}, True),
        ({"loop_detect_window": 0}, False),
        ({"loop_detect_window": 1}, True),
        ({"loop_detect_window": 800}, True),
        ({"loop_detect": False, "loop_detect_window": 800}, False),
    ):
        assert request(path, **fields).limits.loop_detect is wanted
    assert request(path, loop_detect_error=True).limits.loop_detect_error


@pytest.mark.requirement("Y-144")
@BOTH
def test_a_reply_may_end_at_its_first_text(path: str, base: dict[str, Any]) -> None:
    """A field of both completion endpoints."""
    assert request(path, stop_after_output=True).limits.stop_after_output
    assert not request(path, stop_after_output=None).limits.stop_after_output

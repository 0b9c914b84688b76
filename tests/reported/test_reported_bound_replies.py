"""What public reports say does not bind a reply: a call that is demanded, a schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.testing.told import WAYS, body_for, told

from .asking import CHAT, USER, Says, refused


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_call_that_is_demanded_is_made(says: Says, seed: int) -> None:
    """TC-25: never a message alone, whatever the model would have said."""
    server = says("Hello, how are you?")
    echo = {"type": "object", "properties": {"v": {"type": "string"}}, "required": ["v"]}
    chat = {
        "messages": [{"role": "user", "content": "Say hello."}],
        "tools": [{"type": "function", "function": {"name": "echo_probe", "parameters": echo}}],
        "tool_choice": {"type": "function", "function": {"name": "echo_probe"}},
        "chat_template_kwargs": {"enable_thinking": False},
        "temperature": 1,
        "seed": seed,
        "max_tokens": 60,
    }
    ways = [told(server, path, chat, stream=stream) for path, stream in WAYS]
    for way in ways:
        assert [name for name, _ in way.calls] == ["echo_probe"]
        assert way.sha == ways[0].sha


def bound(schema: dict[str, Any]) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


class TestBound:
    """What binds a reply, in every dialect."""

    @pytest.fixture(autouse=True)
    def _library(self) -> None:
        pytest.importorskip("xgrammar", reason="structured output needs the extra `grammar`")

    @pytest.mark.parametrize(
        ("schema", "words"),
        [
            ({"type": "object", "properties": {"kind": {"type": "string", "enum": []}}, "required": ["kind"]}, "enum"),
            ({"type": "object", "properties": {"g": {"type": "string", "pattern": "^(unclosed$"}}}, "not closed"),
        ],
        ids=["SO-02 an empty enum", "SO-10 a group that is not closed"],
    )
    def test_what_cannot_be_kept_to_is_refused_before_any_token(
        self, says: Says, schema: dict[str, Any], words: str
    ) -> None:
        """Also where a stream was asked for; never free text instead."""
        server = says()
        chat = {"messages": [USER], **bound(schema)}
        for path, stream in WAYS:
            assert words in refused(server, path, {**body_for(path, chat), "stream": stream})["message"]

    def test_keys_come_in_the_schemas_order_in_every_dialect(self, says: Says) -> None:
        """SO-06, T-311: one bound reply, whatever the model would have said."""
        server = says("no JSON at all")
        schema = {
            "type": "object",
            "properties": {
                "zeta": {"$ref": "#/$defs/S"},
                "mid": {"type": "boolean"},
                "notes": {"type": "array", "items": {"type": "boolean"}, "maxItems": 1},
                "alpha": {"type": "null"},
            },
            "required": ["zeta", "mid", "notes", "alpha"],
            "additionalProperties": False,
            "$defs": {"S": {"type": "string", "enum": ["one", "two"]}},
        }
        chat = {
            "messages": [USER],
            "max_tokens": 400,
            "temperature": 0,
            "chat_template_kwargs": {"enable_thinking": False},
            **bound(schema),
        }
        ways = [told(server, path, chat, stream=stream) for path, stream in WAYS]
        ways.append(told(server, CHAT, {**chat, "draft": False}, stream=False))
        for way in ways:
            assert way.same == ways[0].same
        assert list(json.loads(ways[0].content)) == ["zeta", "mid", "notes", "alpha"]

    def test_the_grammar_begins_behind_the_reasoning(self, says: Says) -> None:
        """SO-12: free text before, and the value behind."""
        server = says('17-6 is 11, and {"so": on}.</think>{"answer":"17"}')
        schema = {
            "type": "object",
            "properties": {"answer": {"type": "string"}},
            "required": ["answer"],
            "additionalProperties": False,
        }
        chat = {"messages": [USER], "max_tokens": 300, "temperature": 0, **bound(schema)}
        for path, stream in WAYS:
            way = told(server, path, chat, stream=stream)
            assert (way.thinking, json.loads(way.content)) == ('17-6 is 11, and {"so": on}.', {"answer": "17"})

    def test_a_tools_pattern_does_not_bind(self, says: Says) -> None:
        """SO-11: what is offered is no grammar, whatever its patterns."""
        server = says()
        pattern = "^(https:\\/\\/)?(www\\.)?ex\\.com\\/\\d+$"
        urls = {"type": "array", "items": {"type": "string", "pattern": pattern}}
        parameters = {"type": "object", "properties": {"urls": urls}, "required": ["urls"]}
        tools = [{"type": "function", "function": {"name": "t", "parameters": parameters}}]
        server.told(CHAT, {"messages": [USER], "tools": tools, "tool_choice": "auto", "max_tokens": 8})

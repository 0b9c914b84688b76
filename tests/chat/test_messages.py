"""Messages as templates read them."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.chat.messages import template_messages, template_tools
from tensorfold.errors import Unsupported
from tensorfold.ir import Image, Message, Text, Thinking, Tool, ToolCall, ToolResult


def only(message: Message) -> dict[str, Any]:
    (plain,) = template_messages((message,))
    return plain


def test_texts_are_one_text() -> None:
    assert only(Message("user", (Text("a"), Text("b")), name="Ann")) == {"role": "user", "content": "ab", "name": "Ann"}


@pytest.mark.requirement("Y-045")
def test_a_turn_of_the_assistant_has_text_reasoning_and_calls() -> None:
    """Reasoning stands under all three names that templates look for."""
    call = ToolCall("c1", "lookup", '{"city": "Paris", "n": 1}')
    assert only(Message("assistant", (Thinking("hm"), Text("ok"), call))) == {
        "role": "assistant",
        "content": "ok",
        "reasoning_content": "hm",
        "reasoning": "hm",
        "thinking": "hm",
        "tool_calls": [
            {"type": "function", "id": "c1", "function": {"name": "lookup", "arguments": {"city": "Paris", "n": 1}}}
        ],
    }


def test_a_turn_of_calls_alone_has_an_empty_text_and_never_none() -> None:
    """Templates print `None`, or fail to iterate over it."""
    for parts in ((ToolCall("c", "f", "{}"),), (Text(""), ToolCall("c", "f", "{}"))):
        assert only(Message("assistant", parts))["content"] == ""


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"a": {"b": [1, null]}}', {"a": {"b": [1, None]}}),
        ("", {}),
        ("  ", {}),
        ('{"a": ', '{"a": '),
        ("[1]", "[1]"),
        ('"x"', '"x"'),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_arguments_are_a_mapping_when_they_parse_and_else_their_text(text: str, arguments: object) -> None:
    """A template that walks a call's arguments raises on the JSON text that clients send back."""
    plain = only(Message("assistant", (ToolCall("", "f", text),)))
    assert plain["tool_calls"] == [{"type": "function", "function": {"name": "f", "arguments": arguments}}]


def test_results_are_messages_of_their_own_with_their_calls_name() -> None:
    call = Message("assistant", (ToolCall("c1", "lookup", "{}"),))
    results = Message("user", (ToolResult("c1", (Text("31"), Text("C"))), ToolResult("c9", ()), Text("and now?")))
    assert template_messages((call, results))[1:] == [
        {"role": "tool", "content": "31C", "tool_call_id": "c1", "name": "lookup"},
        {"role": "tool", "content": "", "tool_call_id": "c9"},
        {"role": "user", "content": "and now?"},
    ]
    assert template_messages((Message("tool", (ToolResult("", (Text("x"),)),)),)) == [{"role": "tool", "content": "x"}]


def test_results_without_ids_come_in_the_order_of_their_calls() -> None:
    """Some templates name the function of a result."""
    calls = Message("assistant", (ToolCall("", "a", "{}"), ToolCall("i", "b", "{}"), ToolCall("", "c", "{}")))
    results = Message("tool", tuple(ToolResult(id, ()) for id in ("i", "", "", "")))
    names = [message.get("name") for message in template_messages((calls, results))[1:]]
    assert names == ["b", "a", "c", None]


@pytest.mark.requirement("T-064")
def test_an_image_is_refused() -> None:
    """Image input is a 400 while no model reads images."""
    image = Image("data:image/png;base64,")
    for message in (Message("user", (Text("see"), image)), Message("tool", (ToolResult("c", (image,)),))):
        with pytest.raises(Unsupported, match="no images") as caught:
            template_messages((message,))
        assert (caught.value.status, caught.value.param) == (400, "messages")


def test_tools_are_functions_with_a_schema() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert template_tools((Tool("f", "Does f", schema), Tool("g"))) == [
        {"type": "function", "function": {"name": "f", "description": "Does f", "parameters": schema}},
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
    ]
    assert template_tools(()) is None

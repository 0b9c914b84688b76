"""JSON that is none, and the messages and prompts of a body: each refusal names the place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.contracts.dialect import Exchange
from tensorfold.errors import DecodeError, RequestError, Unsupported
from tensorfold.ir import Chat, Message, Text, TextPrompt, TokensPrompt, ToolCall
from tensorfold.testing.dialects import CONTEXT, refusal
from tensorfold_dialect_openai import openai_dialect

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
CODECS = {endpoint.path: endpoint.codec for endpoint in openai_dialect().endpoints}
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
ONCE: dict[str, Any] = {"prompt": "Once"}


def decode(path: str, body: dict[str, Any] | bytes) -> Exchange:
    return CODECS[path].decode(body if isinstance(body, bytes) else json.dumps(body).encode(), CONTEXT)


def refused(path: str, body: dict[str, Any] | bytes) -> RequestError:
    return refusal(CODECS[path], body if isinstance(body, bytes) else json.dumps(body).encode())


# ---- JSON ----

MALFORMED = {
    "empty": (b"", None),
    "blank": (b" \n", None),
    "cut": (b'{"messages": [{"role": "user", "content": "x', "messages[0].content"),
    "list": (b"[]", None),
    "null": (b"null", None),
    "text": (b'"x"', None),
    "behind": (b'{"messages": [], "prompt": "x"} x', None),
    "single quotes": (b"{'messages': []}", None),
    "comma": (b'{"messages": [],}', None),
    "deep": (b'{"messages": ' + b"[" * 1000 + b"]" * 1000 + b"}", None),
    "very deep": (b"[" * 1_000_000, None),
    "invalid UTF-8": (b'{"messages": [{"role": "user", "content": "\xff"}]}', "messages[0].content"),
    "UTF-16": ('{"messages": []}'.encode("utf-16"), None),
    "half a pair, first": (b'{"messages": [{"role": "user", "content": "half \\ud83c"}]}', "messages[0].content"),
    "half a pair, second": (b'{"messages": [{"role": "user", "content": "\\udc0a"}]}', "messages[0].content"),
    "half a pair in a key": (b'{"messages": [{"\\ud83c": 1}]}', "messages[0]"),
    "many numbers": (b'{"x": [' + b"1," * 2_000_001 + b"1]}", None),
    "many strings": (b'{"x": [' + b'"",' * 600_000 + b"1]}", None),
    "many lists": (b'{"x": [' + b"[]," * 600_000 + b"1]}", None),
}


@pytest.mark.parametrize("path", CODECS)
@pytest.mark.parametrize("name", MALFORMED)
def test_a_body_that_is_no_json_is_refused_with_its_place(path: str, name: str) -> None:
    body, place = MALFORMED[name]
    error = refused(path, body)
    assert isinstance(error, DecodeError)
    assert error.param == place


def test_escapes_and_brackets_in_texts_are_no_nesting() -> None:
    text = '[{"' * 1000 + "\\" * 7 + '"'
    (request,) = decode(CHAT, {"messages": [{"role": "user", "content": text}]}).requests
    assert request.prompt == Chat((Message("user", (Text(text),)),))


def test_a_byte_order_mark_is_passed_over() -> None:
    assert decode(CHAT, b"\xef\xbb\xbf" + json.dumps(HI).encode()).requests == decode(CHAT, HI).requests


def test_of_two_equal_keys_the_last_counts() -> None:
    body = json.dumps({**HI, "max_tokens": 1})[:-1].encode() + b', "max_tokens": 2}'
    assert decode(CHAT, body).requests[0].limits.max_tokens == 2


# ---- messages ----


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([], "messages"),
        (None, "messages"),
        ({}, "messages"),
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([{}], "messages[0].role"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "messages[0].content[0].text"),
        ([{"role": "User", "content": "x"}], "messages[0].role"),
        ([{"role": 5, "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": "x"}, {"role": "robot", "content": "x"}], "messages[1].role"),
        ([{"role": "assistant", "tool_calls": [{"id": "a"}]}], "messages[0].tool_calls[0].function"),
        ([{"role": "assistant", "tool_calls": [{"function": {}}]}], "messages[0].tool_calls[0].function.name"),
        ([{"role": "assistant", "tool_calls": [{"type": "custom", "custom": {}}]}], "messages[0].tool_calls[0].type"),
        ([{"role": "assistant", "tool_calls": {}}], "messages[0].tool_calls"),
        ([{"role": "assistant", "audio": {"id": "x"}}], "messages[0].audio"),
    ],
)
def test_a_bad_message_is_refused_with_its_place(messages: object, place: str) -> None:
    error = refused(CHAT, {"messages": messages})
    assert error.param == place
    assert place in error.message


@pytest.mark.requirement("T-064", "T-065", "T-066")
@pytest.mark.parametrize("kind", ["image_url", "input_audio", "video_url", "file", "input_image", "image", "x" * 1000])
@pytest.mark.parametrize("role", ["user", "tool", "assistant", "system"])
def test_a_part_that_is_not_text_is_refused_by_its_type(kind: str, role: str) -> None:
    """Image, audio and video input gives 400 that names the part."""
    parts = [{"type": "text", "text": "x"}, {"type": kind, kind: {"url": "data:,"}}]
    error = refused(CHAT, {"messages": [{"role": role, "content": parts, "tool_call_id": "c"}]})
    assert isinstance(error, Unsupported)
    assert error.param == "messages[0].content[1].type"
    assert kind[:40] in error.message


def test_null_empty_and_missing_content_of_a_turn_that_calls_are_the_same() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [
        {"role": "assistant", "tool_calls": [call], **content} for content in ({"content": None}, {"content": ""}, {})
    ]
    prompts = [decode(CHAT, {"messages": [turn]}).requests[0].prompt for turn in turns]
    assert prompts == [Chat((Message("assistant", (ToolCall("c", "f", "{}"),)),))] * 3


# ---- prompts ----


@pytest.mark.requirement("T-038", "T-039", "T-049", "T-050")
def test_a_completion_runs_text_or_ids_as_given() -> None:
    """Raw text with `add_special_tokens` default false; token ids with nothing added; `[[ids]]` as one prompt."""
    assert decode(COMPLETIONS, {"prompt": "Once"}).requests[0].prompt == TextPrompt("Once", add_special_tokens=False)
    special = decode(COMPLETIONS, {"prompt": "Once", "add_special_tokens": True}).requests[0].prompt
    assert special == TextPrompt("Once", add_special_tokens=True)
    for ids in ([1, 2, 3], [[1, 2, 3]]):
        body = {"prompt": ids, "add_special_tokens": True}
        assert decode(COMPLETIONS, body).requests[0].prompt == TokensPrompt((1, 2, 3))


def test_several_prompts_become_several_requests_with_ids_of_their_own() -> None:
    for prompts, first in ((["a", "b"], TextPrompt("a")), ([[1], [2]], TokensPrompt((1,)))):
        requests = decode(COMPLETIONS, {"prompt": prompts, "n": 2}).requests
        assert [request.id for request in requests] == ["r0-0", "r0-1"]
        assert [request.choices for request in requests] == [2, 2]
        assert requests[0].prompt == first


@pytest.mark.parametrize(
    ("prompt", "place"),
    [
        (None, "prompt"),
        ("", "prompt"),
        ([], "prompt"),
        ([[]], "prompt[0]"),
        ([[1], []], "prompt[1]"),
        ([""], "prompt"),
        (5, "prompt"),
        (True, "prompt"),
        ({}, "prompt"),
        ([True], "prompt"),
        ([1, "a"], "prompt[1]"),
        (["a", 1], "prompt[1]"),
        ([1.5], "prompt[0]"),
        ([-1], "prompt"),
        ([[1], "a"], "prompt[1]"),
        ([[1, None]], "prompt[0][1]"),
        ([[[1]]], "prompt[0][0]"),
        ([10**30], "prompt[0]"),
        (["a"] * 129, "prompt"),
    ],
)
def test_a_bad_prompt_is_refused_with_its_place(prompt: object, place: str) -> None:
    error = refused(COMPLETIONS, {"prompt": prompt})
    assert error.param == place
    assert "prompt" in error.message


def test_a_missing_prompt_is_refused() -> None:
    assert refused(COMPLETIONS, {"model": "m"}).param == "prompt"


@pytest.mark.requirement("T-048")
def test_a_completion_with_messages_is_a_chat() -> None:
    """A `/v1/completions` body with a nonempty `messages` list is handled as chat; an empty one is not."""
    body = {**HI, "prompt": "unused", "temperature": 0}
    exchange = decode(COMPLETIONS, body)
    assert exchange.requests == decode(CHAT, {**HI, "temperature": 0}).requests
    nothings: list[object] = [None, []]
    for nothing in nothings:
        assert decode(COMPLETIONS, {**ONCE, "messages": nothing}).requests[0].prompt == TextPrompt("Once")
    assert refused(COMPLETIONS, {"messages": [{"role": "robot", "content": "x"}]}).param == "messages[0].role"
    assert refused(COMPLETIONS, {"messages": [1]}).param == "messages[0]"

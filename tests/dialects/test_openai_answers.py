"""Reasoning, calls, loops and ends, as the OpenAI dialect tells of them, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.ir import (
    Answer,
    Event,
    Failed,
    Finished,
    Queued,
    Stopped,
    TextDelta,
    ThinkingDelta,
    Timings,
    ToolCallDelta,
    Usage,
    fold,
)

from .openai_requests import CHAT, CODECS, COMPLETIONS, HI, ONCE, decode

USAGE = Finished(Usage(3, 9, reasoning_tokens=4), Timings(), ("00",))


def answered(events: list[Event], path: str = CHAT) -> tuple[Any, list[Any]]:
    """The whole answer's body, and the stream's events."""
    exchange = decode(HI if path == CHAT else ONCE, path)
    encoder = exchange.encoder()
    stream = b"".join(encoder.feed(event) for event in [Queued(3), *events]).decode()
    chunks = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    return json.loads(exchange.answer(_folded(events))), chunks


def _folded(events: list[Event]) -> Answer:
    return fold(events)


@pytest.mark.requirement("T-272", "T-273", "T-276")
def test_reasoning_and_calls_have_fields_of_their_own() -> None:
    """`reasoning_content`, `tool_calls` with `finish_reason: tool_calls`, and the reasoning's tokens in the usage."""
    whole, chunks = answered(
        [
            ThinkingDelta(0, "Let me"),
            ThinkingDelta(0, " see"),
            ToolCallDelta(0, 0, "call_a", "get_weather", ""),
            ToolCallDelta(0, 0, None, None, '{"city": "Pa'),
            ToolCallDelta(0, 0, None, None, 'ris"}'),
            ToolCallDelta(0, 1, "call_b", "now", "{}"),
            Stopped(0, "tool_calls"),
            USAGE,
        ]
    )
    message = whole["choices"][0]["message"]
    assert message["reasoning_content"] == "Let me see"
    assert message["content"] is None
    assert [(call["id"], call["function"]) for call in message["tool_calls"]] == [
        ("call_a", {"name": "get_weather", "arguments": '{"city": "Paris"}'}),
        ("call_b", {"name": "now", "arguments": "{}"}),
    ]
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Let me see"
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [call["index"] for call in calls] == [0, 0, 0, 1]
    assert [call.get("id") for call in calls] == ["call_a", None, None, "call_b"]
    assert [call["function"].get("name") for call in calls] == ["get_weather", None, None, "now"]
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    assert reasons == [None] * (len(reasons) - 1) + ["tool_calls"]
    assert chunks[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4


def test_a_reply_without_calls_has_no_list_of_them() -> None:
    """TC-17: SDK loops take an empty list for a turn of tools."""
    whole, chunks = answered([TextDelta(0, "It is sunny."), Stopped(0, "end", ended_by="<|im_end|>"), USAGE])
    assert "tool_calls" not in whole["choices"][0]["message"]
    assert all("tool_calls" not in choice["delta"] for chunk in chunks for choice in chunk["choices"])
    assert "stop_str" not in whole["choices"][0]


@pytest.mark.requirement("Y-028", "Y-029", "Y-030")
def test_a_loop_is_told_as_one() -> None:
    """`finish_reason: repetition` and `eos_reason: loop_detected`; one within the reasoning leaves no content."""
    whole, chunks = answered([ThinkingDelta(0, "again and again"), Stopped(0, "repetition"), USAGE])
    choice = whole["choices"][0]
    assert (choice["finish_reason"], choice["eos_reason"]) == ("repetition", "loop_detected")
    assert (choice["message"]["content"], choice["message"]["reasoning_content"]) == ("", "again and again")
    assert chunks[-1]["choices"][0]["eos_reason"] == "loop_detected"
    whole, _ = answered([TextDelta(0, "x"), Stopped(0, "end"), USAGE])
    assert "eos_reason" not in whole["choices"][0]


@pytest.mark.requirement("Y-033", "Y-034")
def test_a_loop_that_fails_the_request_is_an_error() -> None:
    """Streamed, the same object is the last event before the end."""
    failed = Failed("a loop", 500, "server_error", "loop_detected")
    encoder = decode({**HI, "stream": True}).encoder()
    events: list[Event] = [Queued(3), TextDelta(0, "x"), failed]
    stream = b"".join(encoder.feed(event) for event in events).decode()
    *_, error, done = [line[6:] for line in stream.splitlines() if line]
    expected = {"error": {"message": "a loop", "type": "server_error", "param": None, "code": "loop_detected"}}
    assert (json.loads(error), done) == (expected, "[DONE]")
    assert json.loads(CODECS[CHAT].encode_error(failed.error(), "r")) == expected


@pytest.mark.requirement("Y-146")
@pytest.mark.parametrize(
    ("stopped", "word"),
    [
        (Stopped(0, "end", ended_by="<|im_end|>"), "<|im_end|>"),
        (Stopped(0, "stop", "END", "END"), "END"),
        (Stopped(0, "length"), None),
    ],
)
def test_a_completion_names_what_ended_it(stopped: Stopped, word: str | None) -> None:
    """The stop token or string, in `stop_str`."""
    whole, chunks = answered([TextDelta(0, "x"), stopped, USAGE], COMPLETIONS)
    assert whole["choices"][0].get("stop_str") == chunks[-1]["choices"][0].get("stop_str") == word

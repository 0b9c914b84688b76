"""Whatever the engine sends, a stream and a whole answer of Responses and Messages say the same."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from tensorfold.contracts.dialect import Exchange
from tensorfold.ir import (
    Event,
    Finished,
    Queued,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ThinkingDelta,
    Timings,
    ToolCallDelta,
    Usage,
    fold,
)
from tensorfold.testing.dialects import CONTEXT
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_ollama import ollama_dialect
from tensorfold_dialect_openai import openai_dialect

CODECS = {
    endpoint.path: endpoint.codec
    for dialect in (anthropic_dialect(), ollama_dialect(), openai_dialect())
    for endpoint in dialect.endpoints
}
USER = {"messages": [{"role": "user", "content": "hi"}]}

texts = some.text(some.characters(codec="utf-8"), max_size=8)
arguments = some.sampled_from([["{}"], ['{"a":', "1}"], ['{"a": [1, '], [""], ["[1]"], ['{"é": "\\u00e9"}']])
reasons: Any = some.sampled_from(["end", "stop", "length", "window", "repetition", "abort"])


@some.composite
def replies(draw: some.DrawFn) -> list[Event]:
    """Thinking, then text, then calls, then the end."""
    events: list[Event] = [Queued(7), Started(3)]
    events += [ThinkingDelta(0, text) for text in draw(some.lists(texts, max_size=3))]
    events += [TextDelta(0, text) for text in draw(some.lists(texts, max_size=4))]
    calls = draw(some.lists(arguments, max_size=2))
    for index, pieces in enumerate(calls):
        events.append(ToolCallDelta(0, index, f"call_{index}", "f", ""))
        events += [ToolCallDelta(0, index, None, None, piece) for piece in pieces]
    reason: StopReason = "tool_calls" if calls else draw(reasons)
    events.append(Stopped(0, reason, draw(some.none() | texts) if reason == "stop" else None))
    usage = Usage(7, draw(some.integers(0, 99)), 3, 1)
    return [*events, Finished(usage, Timings(0.001, 0.02, 0.3), ("a",))]


def decoded(path: str, body: dict[str, Any]) -> Exchange:
    return CODECS[path].decode(json.dumps(body).encode(), CONTEXT)


def streamed(exchange: Exchange, events: list[Event]) -> list[dict[str, Any]]:
    """The JSON events; checks that each has the name that its data has."""
    encoder = exchange.encoder()
    frames = b"".join(map(encoder.feed, events)).decode().split("\n\n")
    assert frames.pop() == ""
    told: list[dict[str, Any]] = []
    for frame in frames:
        name, data = frame.split("\n")
        told.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {told[-1]['type']}"
    return told


@given(replies())
def test_a_stream_of_messages_joins_to_the_whole_message(events: list[Event]) -> None:
    exchange = decoded("/v1/messages", {**USER, "max_tokens": 8, "stream": True})
    whole = json.loads(exchange.answer(fold(events)))
    told = streamed(exchange, events)
    blocks: list[dict[str, Any]] = []
    for event in told:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(blocks)
                blocks.append(event["content_block"])
            case "content_block_delta":
                assert event["index"] == len(blocks) - 1
                (kind, piece) = next((k, v) for k, v in event["delta"].items() if k != "type")
                blocks[-1][kind] = blocks[-1].get(kind, "") + piece
            case _:
                pass
    for block, expected in zip(blocks, whole["content"], strict=True):
        if block["type"] == "tool_use":
            written = block.pop("partial_json", "")
            if "partial_json" in expected:
                assert written == expected.pop("partial_json")
            else:
                block["input"] = json.loads(written or "{}")
        assert block == expected
    (delta,) = [event for event in told if event["type"] == "message_delta"]
    assert delta["delta"] == {key: whole[key] for key in ("stop_reason", "stop_sequence")}
    assert {key: delta[key] for key in ("usage", "tensorfold")} == {key: whole[key] for key in ("usage", "tensorfold")}
    assert told[0]["message"]["id"] == whole["id"]


@given(replies())
def test_a_stream_of_a_response_ends_with_the_whole_response(events: list[Event]) -> None:
    exchange = decoded("/v1/responses", {"input": "hi", "stream": True})
    told = streamed(exchange, events)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert told[-1]["response"] == json.loads(exchange.answer(fold(events)))
    items = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    assert items == told[-1]["response"]["output"]


@given(replies(), some.sampled_from(["/api/chat", "/api/generate"]))
def test_the_lines_of_ollamas_streams_join_to_the_whole_reply(events: list[Event], path: str) -> None:
    exchange = decoded(path, {**USER, "prompt": "hi"})
    whole = json.loads(exchange.answer(fold(events)))
    encoder = exchange.encoder()
    lines = [json.loads(line) for line in b"".join(map(encoder.feed, events)).splitlines()]
    parts = [line.get("message", line) for line in lines]
    expected = whole.get("message", whole)
    for key in ("content", "response", "thinking"):
        assert "".join(part.get(key, "") for part in parts) == expected.get(key, "")
    calls = [call for part in parts for call in part.get("tool_calls", ())]
    assert calls == expected.get("tool_calls", [])
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert {key: lines[-1][key] for key in ("done_reason", "eval_count")} == {
        key: whole[key] for key in ("done_reason", "eval_count")
    }

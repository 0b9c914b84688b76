"""Whatever the engine sends, a stream and a whole answer say the same."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
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
from tensorfold_dialect_openai import openai_dialect

CODECS = {endpoint.path: endpoint.codec for endpoint in openai_dialect().endpoints}
CHOICES = 3
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "n": CHOICES, "stream": True}
ONCE: dict[str, Any] = {"prompt": "Once", "n": CHOICES, "stream": True}

texts = some.text(some.characters(codec="utf-8"), max_size=8)
reasons: Any = some.sampled_from(["end", "stop", "length", "window", "repetition", "abort"])


@some.composite
def one_choice(draw: some.DrawFn, choice: int) -> list[Event]:
    """Thinking, then text, then calls, then the end."""
    events: list[Event] = [ThinkingDelta(choice, text) for text in draw(some.lists(texts, max_size=3))]
    events += [TextDelta(choice, text) for text in draw(some.lists(texts, max_size=4))]
    calls = draw(some.lists(some.lists(texts, max_size=3), max_size=2))
    for index, pieces in enumerate(calls):
        events.append(ToolCallDelta(choice, index, f"call_{choice}_{index}", "f", ""))
        events += [ToolCallDelta(choice, index, None, None, piece) for piece in pieces]
    reason: StopReason = "tool_calls" if calls else draw(reasons)
    return [*events, Stopped(choice, reason, draw(some.none() | texts) if reason == "stop" else None)]


@some.composite
def replies(draw: some.DrawFn) -> list[Event]:
    """A whole stream of three choices, interleaved at random."""
    queues = [draw(one_choice(choice)) for choice in range(CHOICES)]
    events: list[Event] = [Queued(7), Started(3)]
    while any(queues):
        queue = draw(some.sampled_from([each for each in queues if each]))
        events.append(queue.pop(0))
    usage = Usage(7, draw(some.integers(0, 99)), 3, 1, draw(some.integers(0, 2)), 1)
    return [*events, Finished(usage, Timings(0.001, 0.02, 0.3), ("a", "b", "c"))]


def decoded(path: str, body: dict[str, Any]) -> Exchange:
    return CODECS[path].decode(json.dumps(body).encode(), CONTEXT)


def data(stream: bytes) -> list[dict[str, Any]]:
    """The JSON events; checks the framing."""
    assert stream.endswith(b"data: [DONE]\n\n")
    frames = stream.decode().split("\n\n")
    assert frames.pop() == ""
    assert frames.pop() == "data: [DONE]"
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
    return [json.loads(frame[6:]) for frame in frames]


def joined(chunks: Iterable[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Each choice's message, joined the way clients do it."""
    messages: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for part in chunk["choices"]:
            message = messages.setdefault(part["index"], {"content": "", "reasoning_content": "", "calls": {}})
            assert "finish_reason" not in message, "nothing follows the finish reason"
            delta = part.get("delta", {"content": part.get("text")})
            message["content"] += delta.get("content") or ""
            message["reasoning_content"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", ()):
                known = message["calls"].setdefault(call["index"], {"id": "", "name": "", "arguments": ""})
                known["id"] += call.get("id", "")
                known["name"] += call["function"].get("name", "")
                known["arguments"] += call["function"].get("arguments", "")
            if part["finish_reason"]:
                message |= {"finish_reason": part["finish_reason"], "stop_reason": part.get("stop_reason")}
    return messages


@pytest.mark.requirement("T-271", "T-274")
@given(replies(), some.booleans())
def test_a_chat_stream_joins_to_the_whole_answer(events: list[Event], include_usage: bool) -> None:
    """`choices[].message.content` is the answer, and every reply has usage, streamed or not."""
    exchange = decoded("/v1/chat/completions", {**HI, "stream_options": {"include_usage": include_usage}})
    whole = json.loads(exchange.answer(fold(events)))
    encoder = exchange.encoder()
    chunks = data(b"".join(map(encoder.feed, events)))
    messages = joined(chunks)
    assert len(whole["choices"]) == len(messages) == CHOICES
    for choice in whole["choices"]:
        message, streamed = choice["message"], messages[choice["index"]]
        assert (message["content"] or "") == streamed["content"]
        assert message.get("reasoning_content", "") == streamed["reasoning_content"]
        calls = [{"id": call["id"], **call["function"]} for call in message.get("tool_calls", ())]
        assert calls == [streamed["calls"][index] for index in sorted(streamed["calls"])]
        assert message.get("tool_calls") != []
        assert choice["finish_reason"] == streamed["finish_reason"]
        assert choice.get("stop_reason") == streamed["stop_reason"]
    assert {key: chunks[-1][key] for key in ("usage", "tensorfold")} == {
        key: whole[key] for key in ("usage", "tensorfold")
    }
    assert {chunk["id"] for chunk in chunks} == {whole["id"]}


@given(replies())
def test_a_completion_stream_joins_to_the_whole_answer(events: list[Event]) -> None:
    exchange = decoded("/v1/completions", ONCE)
    whole = json.loads(exchange.answer(fold(events)))
    encoder = exchange.encoder()
    messages = joined(data(b"".join(map(encoder.feed, events))))
    for choice in whole["choices"]:
        streamed = messages[choice["index"]]
        assert (choice["text"], choice["finish_reason"]) == (streamed["content"], streamed["finish_reason"])


@pytest.mark.requirement("T-097", "T-098")
@given(replies(), some.sampled_from([None, {}, {"include_usage": False}, {"include_usage": True}]))
def test_usage_stands_on_the_last_event_alone(events: list[Event], options: dict[str, bool] | None) -> None:
    """On the event with `finish_reason`, or with `include_usage` in an own one with `"choices": []`."""
    for path, base in (("/v1/chat/completions", HI), ("/v1/completions", ONCE)):
        encoder = decoded(path, {**base, "stream_options": options}).encoder()
        *others, last = data(b"".join(map(encoder.feed, events)))
        assert "usage" in last
        assert all("usage" not in chunk for chunk in others)
        assert (last["choices"] == []) is (options == {"include_usage": True})
        assert last["choices"] == [] or last["choices"][0]["finish_reason"]


@given(replies())
def test_obfuscated_events_have_lengths_of_64s(events: list[Event]) -> None:
    exchange = decoded("/v1/chat/completions", {**HI, "stream_options": {"include_obfuscation": True}})
    encoder = exchange.encoder()
    frames = b"".join(map(encoder.feed, events)).split(b"\n\n")[:-2]
    assert all((len(frame) - len(b"data: ")) % 64 == 0 for frame in frames)
    assert joined(json.loads(frame[6:]) for frame in frames).keys() == {0, 1, 2}


@given(some.integers(0, 9), some.integers(0, 9))
def test_reasoning_is_part_of_the_completion(reasoning: int, more: int) -> None:
    exchange = decoded("/v1/chat/completions", {"messages": HI["messages"]})
    usage = Usage(7, reasoning + more, reasoning_tokens=reasoning)
    events: list[Event] = [Queued(7), Stopped(0, "end"), Finished(usage, Timings(), ("a",))]
    told = json.loads(exchange.answer(fold(events)))["usage"]
    assert told["completion_tokens_details"]["reasoning_tokens"] <= told["completion_tokens"]
    assert told["total_tokens"] == told["prompt_tokens"] + told["completion_tokens"]

"""How the dialects tell of ends that their APIs have no word for: a loop, an abort, a full window."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.ir import Event, Finished, Queued, Stopped, StopReason, TextDelta, Timings, Usage, fold
from tensorfold.testing.dialects import CONTEXT
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_openai import openai_dialect

CODECS = {
    endpoint.path: endpoint.codec
    for dialect in (openai_dialect(), anthropic_dialect())
    for endpoint in dialect.endpoints
}
TURN: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}


def told(path: str, body: dict[str, Any], reason: StopReason) -> tuple[Any, list[Any]]:
    """The whole answer, and the events of a stream."""
    exchange = CODECS[path].decode(json.dumps(body).encode(), CONTEXT)
    events: list[Event] = [Queued(3), TextDelta(0, "x"), Stopped(0, reason), Finished(Usage(3, 1), Timings(), ("00",))]
    encoder = exchange.encoder()
    stream = b"".join(encoder.feed(event) for event in events).decode()
    lines = [line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data: {")]
    return json.loads(exchange.answer(fold(events))), [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("repetition", "repetition"),
        ("abort", "abort"),
        ("window", "max_output_tokens"),
        ("length", "max_output_tokens"),
    ],
)
def test_a_response_that_did_not_end_by_itself_is_incomplete(reason: StopReason, word: str) -> None:
    """Clients that know the usual reasons alone still see that something is missing."""
    whole, events = told("/v1/responses", {"input": "hi"}, reason)
    assert events[-1]["type"] == "response.incomplete"
    for response in (whole, events[-1]["response"]):
        assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": word})
        assert response["output"][-1]["status"] == "incomplete"


@pytest.mark.parametrize(
    ("reason", "word", "extra"),
    [
        ("repetition", "end_turn", "repetition"),
        ("abort", "end_turn", "abort"),
        ("window", "model_context_window_exceeded", None),
        ("length", "max_tokens", None),
    ],
)
def test_a_message_says_what_it_can_and_the_rest_besides(reason: StopReason, word: str, extra: str | None) -> None:
    """The SDK's types are closed, so that a word of ours stands in a field of ours."""
    whole, events = told("/v1/messages", TURN, reason)
    (ending,) = (event for event in events if event["type"] == "message_delta")
    assert whole["stop_reason"] == ending["delta"]["stop_reason"] == word
    assert whole["tensorfold"].get("stop_reason") == ending["tensorfold"].get("stop_reason") == extra


@pytest.mark.parametrize(
    ("reason", "word"), [("repetition", "repetition"), ("abort", "abort"), ("window", "length"), ("length", "length")]
)
def test_a_chat_says_it_in_its_finish_reason(reason: StopReason, word: str) -> None:
    """As TabbyAPI does; the strict SDK alone minds."""
    whole, events = told("/v1/chat/completions", TURN, reason)
    reasons = [choice["finish_reason"] for event in events for choice in event["choices"]]
    assert whole["choices"][0]["finish_reason"] == reasons[-1] == word

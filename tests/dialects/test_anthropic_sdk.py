"""The real anthropic SDK, strict and lax, against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest

from tensorfold.errors import ContextLengthExceeded, GenerationFailed, Rejected
from tensorfold.http import create_app
from tensorfold.ir import (
    Finished,
    Queued,
    Request,
    Started,
    Stopped,
    TextDelta,
    ThinkingDelta,
    Timings,
    ToolCallDelta,
    Usage,
)
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scripted_engine import ScriptedEngine, ScriptItem
from tensorfold.testing.serving import served
from tensorfold_auth_keys.source import KeySource
from tensorfold_dialect_anthropic import anthropic_dialect

HI: list[Any] = [{"role": "user", "content": "hi"}]


def script(request: Request) -> Iterator[ScriptItem]:
    """What is asked for in the model's name."""
    match request.model:
        case "window":
            yield ContextLengthExceeded("This server's maximum context length is 8 tokens", param="messages")
        case "full":
            yield Rejected("full", status=429, retry_after=0.01)
        case "busy":
            yield Rejected("busy", retry_after=0.01)
        case "broken":
            yield from (Queued(1), TextDelta(0, "one"), GenerationFailed("the round failed"))
        case "calls":
            yield from (Queued(9), Started(4), ThinkingDelta(0, "h"), ThinkingDelta(0, "m"), TextDelta(0, "ok"))
            for index, city in enumerate(("Paris", "Rome")):
                yield ToolCallDelta(0, index, f"call_{index}", "get_weather", "")
                yield ToolCallDelta(0, index, None, None, '{"city": ')
                yield ToolCallDelta(0, index, None, None, f'"{city}"}}')
                yield TextDelta(0, "\n")
            yield from (Stopped(0, "tool_calls"), Finished(Usage(9, 7, 4, 2), Timings(), ("00",)))
        case "stops":
            yield from (Queued(9), TextDelta(0, "one two "), Stopped(0, "stop", "END"))
            yield Finished(Usage(9, 3), Timings(), ("00",))
        case _:
            yield from reply_events(["Hel", "lo"])


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, ScriptedEngine]]:
    engine = ScriptedEngine(MODEL, script)
    app = create_app(engine=engine, model=MODEL, dialects=[anthropic_dialect()], auth=[KeySource(flags=["sk-test"])])
    with served(app) as url:
        yield url, engine


@pytest.fixture(params=[True, False], ids=["strict", "lax"])
def client(server: tuple[str, ScriptedEngine], request: pytest.FixtureRequest) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=server[0], api_key="sk-test", _strict_response_validation=request.param, max_retries=0, timeout=20
    ) as sdk:
        yield sdk


@pytest.mark.requirement("T-040", "T-381", "T-382", "T-383")
def test_a_message(client: anthropic.Anthropic) -> None:
    """JSON: content, stop reason, usage with the cache apart and no cache creation, the request's id."""
    reply = client.messages.create(model="m", max_tokens=8, messages=HI)
    (block,) = reply.content
    assert block.type == "text" and block.text == "Hello"
    assert (reply.stop_reason, reply.stop_sequence, reply.model) == ("end_turn", None, "acme/quokka")
    usage = reply.usage.to_dict()
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (2, 1, 2)
    assert usage["cache_creation_input_tokens"] == 0
    assert usage["output_tokens_details"] == {"thinking_tokens": 0}
    assert reply._request_id
    told: Any = reply.to_dict()["tensorfold"]
    assert told["token_sha"] == "00ff"


@pytest.mark.requirement("T-040", "T-366", "T-372")
def test_a_stream_joins_to_the_whole_message(client: anthropic.Anthropic) -> None:
    """SSE: text, thinking with an empty signature, and calls; the SDK's own accumulation equals the whole answer."""
    for model in ("m", "calls", "stops"):
        whole = client.messages.create(model=model, max_tokens=8, messages=HI)
        with client.messages.stream(model=model, max_tokens=8, messages=HI) as stream:
            joined = stream.get_final_message()
        assert _told(joined) == _told(whole)


def _told(message: Any) -> dict[str, Any]:
    told: dict[str, Any] = message.to_dict()
    for key in ("id", "tensorfold", "stop_details"):  # of keys that only the last event has, the SDK keeps few
        told.pop(key, None)
    for block in told["content"]:
        if "text" in block:
            block["text"] = block["text"].rstrip()
            block.pop("citations", None)
    return told


@pytest.mark.requirement("T-366")
def test_the_blocks_of_a_stream_never_overlap(client: anthropic.Anthropic) -> None:
    """Indexes run from 0; each delta's type fits its block; each call's pieces parse to its input."""
    fits = {"text": {"text_delta"}, "thinking": {"thinking_delta", "signature_delta"}, "tool_use": {"input_json_delta"}}
    events = list(client.messages.create(model="calls", max_tokens=8, messages=HI, stream=True))
    kinds: list[str] = []
    open_block: int | None = None
    for event in events:
        match event.type:
            case "content_block_start":
                assert open_block is None and event.index == len(kinds)
                open_block = event.index
                kinds.append(event.content_block.type)
                start = event.content_block.to_dict()
                assert start.get("input", {}) == {} and start.get("text", "") == "" and start.get("signature", "") == ""
            case "content_block_delta":
                assert event.index == open_block
                assert event.delta.type in fits[kinds[-1]]
            case "content_block_stop":
                assert event.index == open_block
                open_block = None
            case _:
                assert open_block is None
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    assert [event.type for event in events if event.type.startswith("message")] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]


@pytest.mark.requirement("T-369")
def test_the_sequence_that_matched_is_told(client: anthropic.Anthropic) -> None:
    """`stop_sequence`, streamed and not."""
    whole = client.messages.create(model="stops", max_tokens=8, messages=HI, stop_sequences=["END"])
    assert (whole.stop_reason, whole.stop_sequence) == ("stop_sequence", "END")


@pytest.mark.requirement("T-041")
def test_a_count_is_that_of_the_prompt(client: anthropic.Anthropic) -> None:
    """`count_tokens` renders the same prompt and generates nothing."""
    short = client.messages.count_tokens(model="m", messages=HI)
    longer = client.messages.count_tokens(model="m", messages=HI, system="Be brief.")
    assert (short.input_tokens, longer.input_tokens) == (2, 11)


@pytest.mark.requirement("T-384")
def test_errors_become_the_sdks_exceptions(client: anthropic.Anthropic) -> None:
    """Anthropic's envelope with its own words for the kinds of errors."""
    with pytest.raises(anthropic.BadRequestError, match="This server's maximum context length is 8") as window:
        client.messages.create(model="window", max_tokens=8, messages=HI)
    assert window.value.type == "invalid_request_error"
    body: Any = window.value.body
    assert body["error"]["code"] == "context_length_exceeded"
    assert "prompt is too long" in body["error"]["message"]
    assert window.value.request_id
    with pytest.raises(anthropic.RateLimitError) as full:
        client.messages.create(model="full", max_tokens=8, messages=HI, stream=True)
    assert full.value.type == "rate_limit_error"
    with pytest.raises(anthropic.APIStatusError) as busy:
        client.messages.create(model="busy", max_tokens=8, messages=HI)
    assert (busy.value.type, busy.value.status_code) == ("overloaded_error", 503)
    with pytest.raises(anthropic.InternalServerError) as broken:
        client.messages.create(model="broken", max_tokens=8, messages=HI)
    assert broken.value.type == "api_error"
    with pytest.raises(anthropic.AuthenticationError) as who:
        client.with_options(api_key="sk-wrong").messages.create(model="m", max_tokens=8, messages=HI)
    assert who.value.type == "authentication_error"
    with pytest.raises(anthropic.BadRequestError):
        client.messages.count_tokens(model="m", messages=[])


@pytest.mark.requirement("T-384")
def test_a_failure_in_a_stream_is_raised_by_the_sdk(client: anthropic.Anthropic) -> None:
    """The envelope also after the stream has opened."""
    stream = client.messages.create(model="broken", max_tokens=8, messages=HI, stream=True)
    with pytest.raises(anthropic.APIStatusError, match="the round failed"):
        list(stream)


def test_the_sdk_tries_again_when_the_server_says_so(server: tuple[str, ScriptedEngine]) -> None:
    url, engine = server
    before = len(engine.requests)
    with (
        anthropic.Anthropic(base_url=url, api_key="sk-test", max_retries=2) as sdk,
        pytest.raises(anthropic.RateLimitError),
    ):
        sdk.messages.create(model="full", max_tokens=8, messages=HI)
    assert len(engine.requests) - before == 3


async def _ask_async(url: str) -> str:
    async with (
        anthropic.AsyncAnthropic(base_url=url, api_key="sk-test", _strict_response_validation=True) as sdk,
        sdk.messages.stream(model="m", max_tokens=8, messages=HI) as stream,
    ):
        return await stream.get_final_text()


def test_the_async_client(server: tuple[str, ScriptedEngine]) -> None:
    assert asyncio.run(_ask_async(server[0])) == "Hello"


@pytest.mark.requirement("T-389")
@pytest.mark.parametrize("header", [{"x-api-key": "sk-test"}, {"authorization": "Bearer sk-test"}])
@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21", "1999-01-01", None])
def test_the_requests_of_a_coding_agent(
    server: tuple[str, ScriptedEngine], header: dict[str, str], version: str | None
) -> None:
    """Claude Code's query, headers, either way to send the key, and its fields are served, whatever its version."""
    headers = {**header, "anthropic-beta": "claude-code-20250219,context-management-2025-06-27", "x-app": "cli"}
    if version is not None:
        headers["anthropic-version"] = version
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197; cch=1a2b3;"},
        {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
    ]
    tool = {"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}, "eager_input_streaming": True}
    body = {
        "model": "claude-any",
        "max_tokens": 32000,
        "stream": True,
        "system": system,
        "tools": [tool],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "metadata": {"user_id": "user_1_session_2"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "medium"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    }
    url = server[0]
    reply = httpx.post(f"{url}/v1/messages?beta=true", json=body, headers=headers)
    assert reply.status_code == 200
    assert reply.text.startswith("event: message_start\n")
    assert reply.text.endswith('event: message_stop\ndata: {"type":"message_stop"}\n\n')
    count = httpx.post(f"{url}/v1/messages/count_tokens?beta=true", json=body, headers=headers)
    assert count.json() == {"input_tokens": len("You are an agent.hi")}


@pytest.mark.requirement("T-032")
def test_models_are_listed_in_the_sdks_shape(client: anthropic.Anthropic) -> None:
    """`/v1/models` in Anthropic's words."""
    assert [model.id for model in client.models.list()] == ["acme/quokka", "quokka"]
    assert client.models.retrieve("acme/quokka").type == "model"

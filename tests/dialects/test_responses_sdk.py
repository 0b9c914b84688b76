"""Responses through the real openai SDK, strict and lax, against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tensorfold.errors import ContextLengthExceeded, GenerationFailed, Rejected
from tensorfold.http import create_app
from tensorfold.ir import (
    Chat,
    Finished,
    Message,
    Queued,
    Request,
    Started,
    Stopped,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    Timings,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    Usage,
)
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scripted_engine import ScriptedEngine, ScriptItem
from tensorfold.testing.serving import served
from tensorfold_auth_keys.source import KeySource
from tensorfold_dialect_openai import openai_dialect

F: Any = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": False}


def script(request: Request) -> Iterator[ScriptItem]:
    """What is asked for in the model's name."""
    match request.model:
        case "window":
            yield ContextLengthExceeded("This server's maximum context length is 8 tokens", param="messages")
        case "full":
            yield Rejected("full", status=429, retry_after=0.01)
        case "broken":
            yield from (Queued(1), TextDelta(0, "one"), GenerationFailed("the round failed"))
        case "calls":
            yield from (Queued(9), Started(4), ThinkingDelta(0, "h"), ThinkingDelta(0, "m"), TextDelta(0, "ok"))
            for index in range(2):
                yield ToolCallDelta(0, index, f"call_{index}", "f", "")
                yield ToolCallDelta(0, index, None, None, '{"a":')
                yield ToolCallDelta(0, index, None, None, f"{index}}}")
            yield from (Stopped(0, "tool_calls"), Finished(Usage(9, 7, 4, 2), Timings(), ("00",)))
        case "cut":
            yield from (Queued(9), TextDelta(0, "Hel"), Stopped(0, "length"))
            yield Finished(Usage(9, 3), Timings(), ("00",))
        case _:
            yield from reply_events(["Hel", "lo"])


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, ScriptedEngine]]:
    engine = ScriptedEngine(MODEL, script)
    app = create_app(engine=engine, model=MODEL, dialects=[openai_dialect()], auth=[KeySource(flags=["sk-test"])])
    with served(app) as url:
        yield f"{url}/v1", engine


@pytest.fixture(params=[True, False], ids=["strict", "lax"])
def client(server: tuple[str, ScriptedEngine], request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=server[0], api_key="sk-test", _strict_response_validation=request.param, max_retries=0, timeout=20
    ) as sdk:
        yield sdk


@pytest.mark.requirement("T-044", "T-333", "T-334", "T-335", "T-337")
def test_a_response(client: openai.OpenAI) -> None:
    """Reasoning, message and function_call items, and usage, as the SDK types them."""
    reply = client.responses.create(model="calls", input="hi", tools=[F], metadata={"a": "b"})
    reasoning, message, *calls = reply.output
    assert reply.status == "completed"
    assert reasoning.type == "reasoning" and reasoning.content is not None
    assert (reasoning.content[0].text, reasoning.summary, reasoning.encrypted_content) == ("hm", [], None)
    assert message.type == "message" and reply.output_text == "ok"
    assert [(call.call_id, call.name, call.arguments) for call in calls if call.type == "function_call"] == [
        ("call_0", "f", '{"a":0}'),
        ("call_1", "f", '{"a":1}'),
    ]
    assert reply.usage is not None
    usage = reply.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (9, 7, 16)
    assert (usage.input_tokens_details.cached_tokens, usage.input_tokens_details.cache_write_tokens) == (4, 0)
    assert usage.output_tokens_details.reasoning_tokens == 2
    assert reply.metadata == {"a": "b"}
    told: Any = reply.to_dict()["tensorfold"]
    assert told["token_sha"] == "00"


@pytest.mark.requirement("T-329", "T-338", "T-339", "T-340", "T-341", "T-342")
@pytest.mark.parametrize("model", ["m", "calls", "cut"])
def test_a_stream(client: openai.OpenAI, model: str) -> None:
    """Every event has its place and its number; each item has its events in order; the end is the whole response."""
    whole = client.responses.create(model=model, input="hi", tools=[F])
    events = [event.to_dict() for event in client.responses.create(model=model, input="hi", tools=[F], stream=True)]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    types = [str(event["type"]) for event in events]
    assert types[:2] == ["response.created", "response.in_progress"]
    assert types[-1] == f"response.{whole.status}"
    last: Any = events[-1]["response"]
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1  # type: ignore[index]
    for index, item in enumerate(last["output"]):
        own: list[Any] = [event for event in events if event.get("output_index") == index]
        assert {event.get("item_id", event.get("item", {}).get("id")) for event in own} == {item["id"]}
        names = [event["type"].removeprefix("response.") for event in own]
        assert names[0] == "output_item.added" and names[-1] == "output_item.done"
        assert own[-1]["item"] == item
        deltas = [event["delta"] for event in own if event["type"].endswith(".delta")]
        if item["type"] == "function_call":
            assert names[1:-1] == ["function_call_arguments.delta"] * len(deltas) + ["function_call_arguments.done"]
            assert "".join(deltas) == item["arguments"]
        else:
            kind = "output_text" if item["type"] == "message" else "reasoning_text"
            middle = [f"{kind}.delta"] * len(deltas) + [f"{kind}.done"]
            assert names[1:-1] == ["content_part.added", *middle, "content_part.done"]
            assert "".join(deltas) == item["content"][0]["text"]
    told: Any = whole.to_dict()
    assert [_plain(item) for item in last["output"]] == [_plain(item) for item in told["output"]]
    assert (last["usage"], last["tensorfold"]) == (told["usage"], told["tensorfold"])


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != "id"}


def test_the_stream_helper(client: openai.OpenAI) -> None:
    with client.responses.stream(model="calls", input="hi", tools=[F]) as stream:
        final = stream.get_final_response()
    assert final.output_text == "ok"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]


@pytest.mark.requirement("T-336")
def test_a_reply_that_the_limit_cuts_is_incomplete(client: openai.OpenAI) -> None:
    """`status: "incomplete"` with its reason."""
    reply = client.responses.create(model="cut", input="hi", max_output_tokens=3)
    assert reply.status == "incomplete"
    assert reply.incomplete_details is not None and reply.incomplete_details.reason == "max_output_tokens"
    assert reply.output_text == "Hel"


@pytest.mark.requirement("T-045", "T-046", "T-330", "T-343", "T-347")
def test_a_stored_response(client: openai.OpenAI) -> None:
    """Kept before its body or last event is sent, shown, listed, removed; with `store: false` it never is there."""
    whole = client.responses.create(model="m", input=[{"role": "user", "content": "hi"}])
    streamed = list(client.responses.create(model="m", input="hi", stream=True))[-1]
    assert streamed.type == "response.completed"
    for reply in (whole, streamed.response):
        assert client.responses.retrieve(reply.id).to_dict() == reply.to_dict()
        (item,) = client.responses.input_items.list(reply.id)
        assert item.type == "message" and item.role == "user"
        client.responses.delete(reply.id)
        for call in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
            with pytest.raises(openai.NotFoundError) as caught:
                call(reply.id)
            assert caught.value.code == "response_not_found"
    unkept = client.responses.create(model="m", input="hi", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unkept.id)


@pytest.mark.requirement("T-320", "T-345", "T-346")
@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_goes_on(client: openai.OpenAI, server: tuple[str, ScriptedEngine], stream: bool) -> None:
    """The messages of `previous_response_id` are those that a chat client would send, calls and results included."""
    engine = server[1]

    def ask(**fields: Any) -> str:
        reply: Any = client.responses.create(stream=stream, **fields)
        if stream:
            *_, last = reply
            assert last.type == "response.completed"
            reply = last.response
        id: str = reply.id
        return id

    first = ask(model="calls", input="Weather?", tools=[F], instructions="Use tools.")
    outputs: Any = [{"type": "function_call_output", "call_id": f"call_{each}", "output": "3C"} for each in range(2)]
    second = ask(model="m", previous_response_id=first, input=outputs, instructions="Be brief.")
    client.responses.delete(first)
    ask(model="m", previous_response_id=second, input="Which?")
    prompt = engine.requests[-1].prompt
    assert isinstance(prompt, Chat)
    calls = (ToolCall("call_0", "f", '{"a":0}'), ToolCall("call_1", "f", '{"a":1}'))
    assert prompt.messages == (
        Message("user", (Text("Weather?"),)),
        Message("assistant", (Thinking("hm"), Text("ok"), *calls)),
        Message("tool", (ToolResult("call_0", (Text("3C"),)),)),
        Message("tool", (ToolResult("call_1", (Text("3C"),)),)),
        Message("assistant", (Text("Hello"),)),
        Message("user", (Text("Which?"),)),
    )
    before = engine.requests[-2].prompt
    assert isinstance(before, Chat)
    assert before.messages[0] == Message("system", (Text("Be brief."),))
    assert before.messages[1:] == prompt.messages[:4]


def test_a_responses_own_output_may_be_sent_back(client: openai.OpenAI, server: tuple[str, ScriptedEngine]) -> None:
    first = client.responses.create(model="calls", input="Weather?", tools=[F], store=False)
    echoed: list[Any] = [item.to_dict() for item in first.output]
    client.responses.create(model="m", input=[{"role": "user", "content": "Weather?"}, *echoed])
    prompt = server[1].requests[-1].prompt
    assert isinstance(prompt, Chat)
    calls = (ToolCall("call_0", "f", '{"a":0}'), ToolCall("call_1", "f", '{"a":1}'))
    assert prompt.messages[1:] == (Message("assistant", (Thinking("hm"), Text("ok"), *calls)),)


def test_input_tokens_are_counted(client: openai.OpenAI) -> None:
    assert client.responses.input_tokens.count(model="m", input="hi", instructions="abc").input_tokens == 5


def test_input_items_come_in_pages(client: openai.OpenAI) -> None:
    items: list[Any] = [{"role": "user", "content": str(number)} for number in range(5)]
    reply = client.responses.create(model="m", input=items)
    listed = [item.to_dict()["content"][0]["text"] for item in client.responses.input_items.list(reply.id, limit=2)]  # type: ignore[index]
    assert listed == ["4", "3", "2", "1", "0"]
    first = client.responses.input_items.list(reply.id, limit=2, order="asc")
    assert [item.to_dict()["content"][0]["text"] for item in first.data] == ["0", "1"]  # type: ignore[index]
    with pytest.raises(openai.BadRequestError):
        client.responses.input_items.list(reply.id, limit=0)
    with pytest.raises(openai.BadRequestError):
        client.responses.input_items.list(reply.id, after="msg_none")
    with pytest.raises(openai.BadRequestError):
        next(iter(client.responses.retrieve(reply.id, stream=True)))


def test_errors_become_the_sdks_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as window:
        client.responses.create(model="window", input="hi")
    assert window.value.code == "context_length_exceeded"
    with pytest.raises(openai.RateLimitError):
        client.responses.create(model="full", input="hi", stream=True)
    with pytest.raises(openai.InternalServerError):
        client.responses.create(model="broken", input="hi")
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="sk-wrong").responses.create(model="m", input="hi")
    with pytest.raises(openai.BadRequestError) as tools:
        client.responses.create(model="m", input="hi", tools=[{"type": "web_search"}])
    assert tools.value.param == "tools"


@pytest.mark.requirement("T-342")
def test_a_failure_in_a_stream_is_told(client: openai.OpenAI) -> None:
    """`response.failed` with the error, and what was there before it."""
    events = list(client.responses.create(model="broken", input="hi", stream=True))
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert (last.response.error.code, last.response.error.message) == ("server_error", "the round failed")
    assert last.response.output_text == "one"


def test_a_stored_response_asks_for_a_key(server: tuple[str, ScriptedEngine]) -> None:
    for path in ("/responses/resp_1", "/responses/resp_1/input_items"):
        refused = httpx.get(f"{server[0]}{path}")
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "invalid_api_key"

"""The real openai SDK, strict and lax, against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tensorfold.errors import ContextLengthExceeded, GenerationFailed, Rejected
from tensorfold.http import create_app
from tensorfold.ir import (
    Finished,
    Queued,
    Request,
    Stopped,
    TextDelta,
    TextPrompt,
    ThinkingDelta,
    Timings,
    ToolCallDelta,
    Usage,
)
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scripted_engine import ScriptedEngine, ScriptItem
from tensorfold.testing.serving import served
from tensorfold_auth_keys.source import KeySource
from tensorfold_dialect_openai import openai_dialect

HI: list[Any] = [{"role": "user", "content": "hi"}]


def script(request: Request) -> Iterator[ScriptItem]:
    """What is asked for in the model's name."""
    match request.model:
        case "window":
            message = "This server's maximum context length is 8 tokens; the prompt has 9"
            yield ContextLengthExceeded(message, param="messages")
        case "full":
            yield Rejected("full", status=429, retry_after=0.01)
        case "broken":
            yield Queued(1)
            yield TextDelta(0, "one")
            yield GenerationFailed("the round failed")
        case "calls":
            yield from (
                ThinkingDelta(0, "hm"),
                ToolCallDelta(0, 0, "call_1", "f", ""),
                ToolCallDelta(0, 0, None, None, '{"a":'),
                ToolCallDelta(0, 0, None, None, "1}"),
                Stopped(0, "tool_calls"),
                Finished(Usage(3, 9, 0, 1), Timings(), ("00",)),
            )
        case _:
            name = request.prompt.text if isinstance(request.prompt, TextPrompt) else "lo"
            yield from reply_events(["Hel", name], request.choices)


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


@pytest.mark.requirement("Y-001", "T-032")
def test_models(client: openai.OpenAI) -> None:
    """Clients of the OpenAI standard are served: the models and their aliases are listed and found."""
    assert [model.id for model in client.models.list()] == ["acme/quokka", "quokka"]
    assert client.models.retrieve("acme/quokka").owned_by == "tensorfold"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("other")
    assert caught.value.code == "model_not_found"


@pytest.mark.requirement("T-037", "T-271", "T-274")
def test_a_chat(client: openai.OpenAI) -> None:
    """Text chat, not streamed: content, finish reason, usage with its details, the request's id."""
    reply = client.chat.completions.create(model="m", messages=HI, n=2, temperature=0, max_completion_tokens=8)
    assert [choice.message.content for choice in reply.choices] == ["Hello", "Hello"]
    assert [choice.finish_reason for choice in reply.choices] == ["stop", "stop"]
    assert reply.model == "acme/quokka"
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (3, 4, 7)
    assert reply.usage.prompt_tokens_details is not None
    assert reply.usage.prompt_tokens_details.cached_tokens == 1
    assert reply._request_id
    told: Any = reply.to_dict()["tensorfold"]
    assert (told["token_sha"], told["choice_token_sha"]) == ("00ff", ["00ff", "00ff"])


@pytest.mark.requirement("T-037", "T-096", "T-097")
def test_a_streamed_chat(client: openai.OpenAI) -> None:
    """Text chat, streamed; the last event carries usage."""
    chunks = list(client.chat.completions.create(model="m", messages=HI, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert all(chunk.usage is None for chunk in chunks[:-1])


@pytest.mark.requirement("T-098")
def test_a_streamed_chat_with_usage_apart(client: openai.OpenAI) -> None:
    """`include_usage` sends usage in an event of its own."""
    options: Any = {"include_usage": True}
    chunks = list(client.chat.completions.create(model="m", messages=HI, stream=True, stream_options=options))
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_the_stream_helper(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="m", messages=HI) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "Hello"


def test_calls_are_joined_by_the_helper_as_they_are_in_the_whole_answer(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="calls", messages=HI)
    with client.chat.completions.stream(model="calls", messages=HI) as stream:
        final = stream.get_final_completion()
    for reply in (whole, final):
        message = reply.choices[0].message
        assert reply.choices[0].finish_reason == "tool_calls"
        assert message.tool_calls is not None
        (call,) = message.tool_calls
        assert call.type == "function"
        assert (call.id, call.function.name, call.function.arguments) == ("call_1", "f", '{"a":1}')
        assert message.to_dict()["reasoning_content"] == "hm"


@pytest.mark.requirement("T-038", "T-039")
def test_completions(client: openai.OpenAI, server: tuple[str, ScriptedEngine]) -> None:
    """`/v1/completions` takes text, texts, ids and lists of ids."""
    assert client.completions.create(model="m", prompt="p").choices[0].text == "Help"
    assert client.completions.create(model="m", prompt=[1, 2]).choices[0].text == "Hello"
    assert client.completions.create(model="m", prompt=[[1, 2]]).choices[0].text == "Hello"
    several = client.completions.create(model="m", prompt=["p", "q"], n=2)
    assert [choice.text for choice in several.choices] == ["Help", "Help", "Helq", "Helq"]


def test_streamed_completions(server: tuple[str, ScriptedEngine]) -> None:
    # Not strict: the SDK's type has no null for the finish reason of the events before the last, which the API has.
    with openai.OpenAI(base_url=server[0], api_key="sk-test") as sdk:
        chunks = list(sdk.completions.create(model="m", prompt="p", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Help"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None


@pytest.mark.requirement("T-251", "T-253")
def test_errors_become_the_sdks_exceptions(client: openai.OpenAI) -> None:
    """A refusal by the window has code `context_length_exceeded` and the message that clients look for."""
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="window", messages=HI)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "messages")
    assert refused.value.request_id
    with pytest.raises(openai.RateLimitError):
        client.chat.completions.create(model="full", messages=HI, stream=True)
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="broken", messages=HI)
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="m", messages=HI, temperature=True)
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="sk-wrong").models.list()


@pytest.mark.requirement("T-260")
def test_a_failure_in_a_stream_is_raised_by_the_sdk(client: openai.OpenAI) -> None:
    """An error event of type `server_error`."""
    stream = client.chat.completions.create(model="broken", messages=HI, stream=True)
    assert [next(stream).choices[0].delta.content for _ in range(2)] == ["", "one"]
    with pytest.raises(openai.APIError, match="the round failed"):
        next(stream)


def test_the_sdk_tries_again_when_the_server_says_so(server: tuple[str, ScriptedEngine]) -> None:
    url, engine = server
    before = len(engine.requests)
    with openai.OpenAI(base_url=url, api_key="sk-test", max_retries=2) as sdk, pytest.raises(openai.RateLimitError):
        sdk.chat.completions.create(model="full", messages=HI)
    assert len(engine.requests) - before == 3


async def _ask_async(url: str) -> list[str]:
    async with openai.AsyncOpenAI(base_url=url, api_key="sk-test", _strict_response_validation=True) as sdk:
        stream = await sdk.chat.completions.create(model="m", messages=HI, stream=True)
        return [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]


def test_the_async_client(server: tuple[str, ScriptedEngine]) -> None:
    import asyncio

    assert "".join(asyncio.run(_ask_async(server[0]))) == "Hello"

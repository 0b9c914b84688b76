"""Ollama's API: bodies, and the real client against a real server."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import ollama
import pytest

from tensorfold.errors import ContextLengthExceeded, GenerationFailed, RequestError
from tensorfold.http import create_app
from tensorfold.ir import (
    Chat,
    Finished,
    Image,
    JsonObject,
    JsonSchema,
    Limits,
    Message,
    Queued,
    Request,
    Sampling,
    Stopped,
    Text,
    TextDelta,
    TextPrompt,
    Thinking,
    ThinkingDelta,
    Timings,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    Usage,
)
from tensorfold.testing.dialects import CONTEXT, MODEL, refusal, reply_events
from tensorfold.testing.scripted_engine import ScriptedEngine, ScriptItem
from tensorfold.testing.serving import served
from tensorfold_dialect_ollama import ollama_dialect

CODECS = {endpoint.path: endpoint.codec for endpoint in ollama_dialect().endpoints}
CHAT, GENERATE = "/api/chat", "/api/generate"
HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def request(path: str, **fields: Any) -> Request:
    (only,) = CODECS[path].decode(json.dumps(fields).encode(), CONTEXT).requests
    return only


def refused(path: str, **fields: Any) -> RequestError:
    return refusal(CODECS[path], json.dumps(fields).encode())


# ---- bodies ----


def test_options_reach_the_engine() -> None:
    options: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 0,
        "min_p": 0.1,
        "seed": 3,
        "repeat_penalty": 1.1,
    }
    options |= {"num_predict": 8, "stop": ["a"], "num_ctx": 4096, "num_gpu": 1}
    for path, body in ((CHAT, {"messages": HI}), (GENERATE, {"prompt": "hi"})):
        wanted = request(path, **body, options=options)
        assert wanted.sampling == Sampling(
            temperature=0.5, top_p=0.9, top_k=0, min_p=0.1, seed=3, repetition_penalty=1.1
        )
        assert wanted.limits == Limits(max_tokens=8, stop=("a",), overflow="cut")
        assert request(path, **body, options={"num_predict": -1}).limits.max_tokens is None
        assert request(path, **body, options=None).sampling == Sampling()
        assert request(path, **body, format="json").grammar == JsonObject()
        assert request(path, **body, format={"type": "object"}).grammar == JsonSchema({"type": "object"})


@pytest.mark.parametrize(
    ("think", "variables", "effort"),
    [
        (None, {}, None),
        (True, {"enable_thinking": True}, None),
        (False, {"enable_thinking": False}, None),
        ("low", {}, "low"),
    ],
)
def test_thinking(think: object, variables: object, effort: object) -> None:
    for path, body in ((CHAT, {"messages": HI}), (GENERATE, {"prompt": "hi"})):
        prompt = request(path, **body, think=think).prompt
        assert isinstance(prompt, Chat)
        assert (prompt.template_kwargs, prompt.reasoning_effort) == (variables, effort)


def test_a_conversation_with_calls_that_have_no_ids() -> None:
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "go", "images": ["iVBORAAA"]},
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call, {"function": {"name": "g"}}]},
        {"role": "tool", "content": "two", "tool_name": "g"},
        {"role": "tool", "content": "one"},
    ]
    prompt = request(CHAT, messages=messages, tools=[TOOL]).prompt
    assert isinstance(prompt, Chat)
    assert prompt.tools == (Tool("f", None, {"type": "object"}),)
    assert prompt.messages == (
        Message("system", (Text("Be brief."),)),
        Message("user", (Text("go"), Image("data:image/png;base64,iVBORAAA"))),
        Message("assistant", (Thinking("hm"), ToolCall("call_2_0", "f", '{"a":1}'), ToolCall("call_2_1", "g", "{}"))),
        Message("tool", (ToolResult("call_2_1", (Text("two"),)),), "g"),
        Message("tool", (ToolResult("call_2_0", (Text("one"),)),)),
    )


def test_a_prompt_is_a_users_message_or_raw() -> None:
    prompt = request(GENERATE, prompt="hi", system="Be brief.").prompt
    assert isinstance(prompt, Chat)
    assert prompt.messages == (Message("system", (Text("Be brief."),)), Message("user", (Text("hi"),)))
    assert request(GENERATE, prompt="hi", raw=True).prompt == TextPrompt("hi")


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {}, "messages"),
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        (CHAT, {"messages": HI, "options": {"temperature": True}}, "options.temperature"),
        (CHAT, {"messages": HI, "options": {"mirostat": 2}}, "mirostat"),
        (CHAT, {"messages": HI, "options": []}, "options"),
        (CHAT, {"messages": HI, "format": "xml"}, "format"),
        (CHAT, {"messages": HI, "think": "huge"}, "think"),
        (CHAT, {"messages": HI, "tools": [{"type": "web"}]}, "tools[0].type"),
        (GENERATE, {"prompt": ""}, "prompt"),
        (GENERATE, {"prompt": "x", "suffix": "y"}, "suffix"),
        (GENERATE, {"prompt": "x", "context": [1]}, "context"),
    ],
)
def test_a_malformed_field_is_named(path: str, fields: dict[str, Any], param: str) -> None:
    error = refused(path, **fields)
    assert error.param == param
    assert json.loads(CODECS[path].encode_error(error, "req_1")) == {"error": error.message}
    assert param.rpartition(".")[2].partition("[")[0] in error.message


# ---- the real client ----


def script(request: Request) -> Iterator[ScriptItem]:
    """What is asked for in the model's name."""
    match request.model:
        case "window":
            yield ContextLengthExceeded("This server's maximum context length is 8 tokens")
        case "broken":
            yield from (Queued(1), TextDelta(0, "one"), GenerationFailed("the round failed"))
        case "calls":
            yield from (Queued(9), ThinkingDelta(0, "h"), ThinkingDelta(0, "m"), TextDelta(0, "ok"))
            for index in range(2):
                yield ToolCallDelta(0, index, f"call_{index}", "f", "")
                yield ToolCallDelta(0, index, None, None, '{"a":')
                yield ToolCallDelta(0, index, None, None, f"{index}}}")
            yield ToolCallDelta(0, 2, "call_2", "f", '{"a": [1')
            yield from (Stopped(0, "length"), Finished(Usage(9, 7), Timings(0.1, 0.2, 0.3), ("00",)))
        case _:
            yield from reply_events(["Hel", "lo"])


@pytest.fixture(scope="module")
def client() -> Iterator[ollama.Client]:
    model = dataclasses.replace(
        MODEL, width=576, weights_bytes=269_000_000, capabilities=frozenset({"tools"}), path="/m/q.gguf"
    )
    app = create_app(engine=ScriptedEngine(model, script), model=model, dialects=[ollama_dialect()])
    with served(app) as url:
        yield ollama.Client(url)


def test_a_chat(client: ollama.Client) -> None:
    reply = client.chat("m", messages=HI)
    assert (reply.message.content, reply.done, reply.done_reason, reply.model) == ("Hello", True, "stop", "acme/quokka")
    assert (reply.prompt_eval_count, reply.eval_count, reply.eval_duration) == (3, 2, 300_000_000)
    assert reply.total_duration == 600_000_000


def test_a_stream_joins_to_the_whole_reply(client: ollama.Client) -> None:
    for model in ("m", "calls"):
        whole = client.chat(model, messages=HI)
        parts = list(client.chat(model, messages=HI, stream=True))
        assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
        assert "".join(part.message.content or "" for part in parts) == whole.message.content
        assert "".join(part.message.thinking or "" for part in parts) == (whole.message.thinking or "")
        calls = [call for part in parts for call in part.message.tool_calls or ()]
        expected = [{"a": 0}, {"a": 1}, {}] if model == "calls" else []
        for told in (calls, list(whole.message.tool_calls or ())):
            assert [dict(call.function.arguments) for call in told] == expected
        assert (parts[-1].done_reason, parts[-1].eval_count) == (whole.done_reason, whole.eval_count)


def test_generate(client: ollama.Client) -> None:
    assert client.generate("m", prompt="hi").response == "Hello"
    assert "".join(part.response or "" for part in client.generate("m", prompt="hi", stream=True)) == "Hello"
    assert client.generate("calls", prompt="hi").thinking == "hm"
    assert client.generate("calls", prompt="hi", raw=True).response == "hmok"
    assert (
        "".join(part.response or "" for part in client.generate("calls", prompt="hi", raw=True, stream=True)) == "hmok"
    )


def test_the_model_is_described(client: ollama.Client) -> None:
    names = [model.model for model in client.list().models]
    assert names == ["acme/quokka", "quokka"]
    shown = client.show("quokka")
    assert shown.capabilities == ["completion", "tools"]
    assert shown.modelinfo is not None
    assert shown.modelinfo["llama.context_length"] == MODEL.window
    assert shown.details is not None and shown.details.parameter_size == "135.0M"
    assert [model.model for model in client.ps().models] == ["acme/quokka"]


def test_errors_become_the_clients_exceptions(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="maximum context length") as caught:
        client.chat("window", messages=HI)
    assert caught.value.status_code == 400
    with pytest.raises(ollama.ResponseError, match="the round failed") as broken:
        client.chat("broken", messages=HI)
    assert broken.value.status_code == 500
    with pytest.raises(ollama.ResponseError, match="the round failed"):
        list(client.chat("broken", messages=HI, stream=True))

"""One conversation, told in the words of each dialect, is one prompt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tensorfold.chat.prompt import PromptBuilder
from tensorfold.http import Application, create_app
from tensorfold.ir import Chat, Prompt
from tensorfold.testing.asgi import ask
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scripted_engine import ScriptedEngine
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_openai import openai_dialect

ARGUMENTS = '{"city":"Paris"}'

CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Weather "}, {"type": "text", "text": "é?"}]},
        {
            "role": "assistant",
            "content": "Looking.",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": ARGUMENTS}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "3C"},
        {"role": "assistant", "content": "Cold."},
        {"role": "user", "content": "Which city?"},
    ],
    "max_tokens": 16,
}
RESPONSES: dict[str, Any] = {
    "instructions": "Be brief.",
    "input": [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "Weather "}, {"type": "input_text", "text": "é?"}],
        },
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Looking."}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": ARGUMENTS},
        {"type": "function_call_output", "call_id": "c1", "output": "3C"},
        {"role": "assistant", "content": "Cold."},
        {"role": "user", "content": "Which city?"},
    ],
    "max_output_tokens": 16,
}
MESSAGES: dict[str, Any] = {
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Weather "}, {"type": "text", "text": "é?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "c1", "name": "f", "input": json.loads(ARGUMENTS)},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "3C"}]},
        {"role": "assistant", "content": "Cold."},
        {"role": "user", "content": "Which city?"},
    ],
    "max_tokens": 16,
}
TOLD = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES}


@pytest.fixture
def engine(prompts: PromptBuilder) -> ScriptedEngine:
    return ScriptedEngine(MODEL, lambda request: reply_events(["Par", "is"]), prompts)


@pytest.fixture
def app(engine: ScriptedEngine) -> Iterator[Application]:
    app = create_app(engine=engine, model=MODEL, dialects=[openai_dialect(), anthropic_dialect()])
    yield app
    app.close()


def prompt(app: Application, engine: ScriptedEngine, path: str, body: dict[str, Any]) -> Prompt:
    answered = ask(app, "POST", path, body=json.dumps(body).encode())
    assert answered.status == 200, answered.body
    assert b'"token_sha":"00ff"' in answered.body
    return engine.requests[-1].prompt


@pytest.mark.requirement("T-310", "T-311", "T-312", "T-360")
@pytest.mark.parametrize("stream", [False, True])
def test_one_conversation_is_one_prompt(
    app: Application, engine: ScriptedEngine, prompts: PromptBuilder, stream: bool
) -> None:
    """Chat, Responses and Messages, streamed or not, run the same request on the same engine."""
    chat = prompt(app, engine, "/v1/chat/completions", {**CHAT, "stream": stream})
    assert isinstance(chat, Chat)
    assert prompt(app, engine, "/v1/responses", {**RESPONSES, "stream": stream}) == chat
    off = prompt(app, engine, "/v1/messages", {**MESSAGES, "stream": stream})
    assert isinstance(off, Chat)
    # Messages has thinking off by default, which the others ask for with an effort.
    assert off.reasoning_effort == "none"
    responses = {**RESPONSES, "stream": stream, "reasoning": {"effort": "none"}}
    assert prompt(app, engine, "/v1/responses", responses) == off
    assert off.messages == chat.messages
    ids = {prompts.prepare(request.prompt).ids for request in engine.requests}
    assert len(ids) == 1
    assert {request.draft for request in engine.requests} == {True}


def test_every_dialect_reports_the_same_usage(app: Application, engine: ScriptedEngine) -> None:
    usages = [
        json.loads(ask(app, "POST", path, body=json.dumps(body).encode()).body)["usage"] for path, body in TOLD.items()
    ]
    chat, responses, messages = usages
    assert chat["prompt_tokens"] == responses["input_tokens"]
    assert chat["prompt_tokens"] == messages["input_tokens"] + messages["cache_read_input_tokens"]
    assert chat["completion_tokens"] == responses["output_tokens"] == messages["output_tokens"]

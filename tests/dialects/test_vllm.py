"""vLLM's tokenizer routes, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tensorfold.chat.prompt import PromptBuilder
from tensorfold.contracts.chat import Tokenizer
from tensorfold.http import Application, create_app
from tensorfold.testing.asgi import ask
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scripted_engine import ScriptedEngine
from tensorfold_dialect_openai import openai_dialect
from tensorfold_dialect_vllm import vllm_dialect

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief. <|im_end|>"},
    {"role": "user", "content": [{"type": "text", "text": "the "}, {"type": "text", "text": "hello é漢"}]},
]
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
ROUTES = pytest.mark.parametrize("prefix", ["", "/v1"])


@pytest.fixture
def engine(prompts: PromptBuilder) -> ScriptedEngine:
    return ScriptedEngine(MODEL, lambda request: reply_events(["ok"]), prompts)


@pytest.fixture
def app(engine: ScriptedEngine, tokenizer: Tokenizer) -> Iterator[Application]:
    app = create_app(engine=engine, model=MODEL, dialects=[vllm_dialect(), openai_dialect()], tokenizer=tokenizer)
    yield app
    app.close()


def answered(app: Application, path: str, body: object, status: int = 200) -> dict[str, Any]:
    reply = ask(app, "POST", path, body=json.dumps(body).encode())
    assert reply.status == status, reply.body
    read: dict[str, Any] = json.loads(reply.body)
    return read


@pytest.mark.requirement("T-042", "T-051", "T-054", "T-055")
@ROUTES
def test_a_text_is_tokenized(app: Application, prefix: str, tokenizer: Tokenizer) -> None:
    """`count`, `max_model_len` (an integer) and `tokens` of a text."""
    told = answered(app, f"{prefix}/tokenize", {"prompt": "hello <|im_end|>", "model": "any"})
    ids = tokenizer.encode("hello <|im_end|>", add_special_tokens=True, parse_special=True)
    assert told == {"count": len(ids), "max_model_len": MODEL.window, "tokens": ids}


@pytest.mark.requirement("T-051")
def test_an_empty_text_has_no_tokens(app: Application) -> None:
    """`/tokenize` counts an empty text, which could not be run."""
    nothing = {"count": 0, "max_model_len": MODEL.window, "tokens": []}
    assert answered(app, "/tokenize", {"prompt": ""}) == nothing
    assert answered(app, "/tokenize", {"prompt": "", "return_token_strs": True}) == {**nothing, "token_strs": []}
    assert answered(app, "/detokenize", {"tokens": []}) == {"prompt": ""}


@pytest.mark.requirement("T-042", "T-052", "T-057")
@pytest.mark.parametrize("extra", [{}, {"chat_template_kwargs": {}}, {"add_generation_prompt": True}])
def test_the_ids_of_messages_are_those_that_the_chat_route_runs(
    app: Application, engine: ScriptedEngine, prompts: PromptBuilder, extra: dict[str, Any]
) -> None:
    """The same request gives the same ids."""
    body = {"messages": MESSAGES, **extra}
    told = answered(app, "/tokenize", body)
    chat = answered(app, "/v1/chat/completions", body)
    ran = prompts.prepare(engine.requests[-1].prompt)
    assert told["tokens"] == list(ran.ids)
    assert told["count"] == len(ran.ids)
    assert chat["model"] == MODEL.id


@pytest.mark.requirement("T-052", "T-053")
def test_what_shapes_the_prompt_is_read(app: Application) -> None:
    """`tools` and `add_generation_prompt`, true by default, change the ids."""

    def count(**fields: Any) -> int:
        told: int = answered(app, "/tokenize", {"messages": MESSAGES, **fields})["count"]
        return told

    def text(**fields: Any) -> str:
        ids = answered(app, "/tokenize", {"messages": MESSAGES, **fields})["tokens"]
        read: str = answered(app, "/detokenize", {"tokens": ids})["prompt"]
        return read

    assert text().endswith("<|im_start|>assistant\n")
    assert text(add_generation_prompt=False) == text().removesuffix("<|im_start|>assistant\n")
    assert '"name": "f"' in text(tools=[TOOL])
    assert count(tools=[TOOL], tool_choice="none") == count()
    assert count(reasoning_effort="low", chat_template_kwargs={"x": 1}) == count()
    continued = [*MESSAGES, {"role": "assistant", "content": "So"}]
    assert text(messages=continued, continue_final_message=True).endswith("assistant\nSo")


@pytest.mark.requirement("T-056")
def test_tokens_are_spelled_when_asked_for(app: Application) -> None:
    """`return_token_strs` adds `token_strs`."""
    told = answered(app, "/tokenize", {"prompt": "hello the<|im_end|>", "return_token_strs": True})
    assert "".join(told["token_strs"]) == "hello the<|im_end|>"
    assert told["token_strs"][-1] == "<|im_end|>"
    assert len(told["token_strs"]) == told["count"]
    assert "token_strs" not in answered(app, "/tokenize", {"prompt": "hello"})


@pytest.mark.requirement("T-043", "T-059")
@ROUTES
def test_tokens_are_read_back_with_their_control_tokens(app: Application, prefix: str) -> None:
    """`/detokenize` takes `tokens` and returns `prompt`, special tokens included."""
    text = "<|im_start|>user\nthe hello é漢<|im_end|>"
    ids = answered(app, "/tokenize", {"prompt": text})["tokens"]
    assert answered(app, f"{prefix}/detokenize", {"tokens": ids}) == {"prompt": text}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"content": "hi"}, "content"),
        ("/tokenize", {"prompt": "hi", "messages": MESSAGES}, "messages"),
        ("/tokenize", {"prompt": ["hi"]}, "prompt"),
        ("/tokenize", {"prompt": "\ud83c"}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": MESSAGES, "tools": [{"type": "web_search"}]}, "tools[0].type"),
        ("/tokenize", {"messages": MESSAGES, "tools": [{"type": "function"}]}, "tools[0].function"),
        ("/tokenize", {"messages": MESSAGES, "tool_choice": "required"}, "tool_choice"),
        ("/tokenize", {"messages": MESSAGES, "tool_choice": "some"}, "tool_choice"),
        ("/tokenize", {"messages": MESSAGES, "reasoning_effort": "huge"}, "reasoning_effort"),
        ("/tokenize", {"messages": MESSAGES, "chat_template": "x"}, "chat_template"),
        (
            "/tokenize",
            {"messages": MESSAGES, "continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
        ),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": "hi"}, "tokens"),
        ("/detokenize", {"tokens": [0, 10_000_000]}, "tokens[1]"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
    ],
)
def test_a_malformed_field_is_named(app: Application, path: str, body: object, param: str) -> None:
    told = answered(app, path, body, status=400)
    assert told["error"]["param"] == param
    assert told["error"]["type"] == "invalid_request_error"


def test_a_body_of_llama_cpps_route_is_told_apart(app: Application) -> None:
    told = answered(app, "/tokenize", {"content": "hi", "add_special": False}, status=400)
    assert "llama.cpp" in told["error"]["message"]


def test_an_engine_elsewhere_spells_no_tokens(engine: ScriptedEngine) -> None:
    app = create_app(engine=engine, model=MODEL, dialects=[vllm_dialect()])
    assert answered(app, "/tokenize", {"prompt": "a"})["count"] == 1
    assert "tokenizer" in answered(app, "/detokenize", {"tokens": [1]}, status=400)["error"]["message"]
    app.close()

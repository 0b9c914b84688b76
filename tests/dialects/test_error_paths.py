"""Every way in which every route can fail: the dialect's own envelope, and headers that make SDKs do the right thing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tensorfold.errors import GenerationFailed, Rejected, RequestError
from tensorfold.http import Application, HttpSettings, create_app
from tensorfold.ir import Queued, Request, TextDelta
from tensorfold.testing.asgi import Answered, ask
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scripted_engine import ScriptedEngine, ScriptItem
from tensorfold.testing.toy_tokenizer import ToyTokenizer
from tensorfold_auth_keys.source import KeySource
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_decisions import decisions_dialect
from tensorfold_dialect_llamacpp import llamacpp_dialect
from tensorfold_dialect_ollama import ollama_dialect
from tensorfold_dialect_openai import openai_dialect
from tensorfold_dialect_vllm import vllm_dialect

KEY = {"x-api-key": "k"}
TURN: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
BOTH_KINDS: dict[str, Any] = {"id": "a", "type": "yes_no", "question": "a?", "instructions": "b"}

ENDPOINTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "/v1/chat/completions": ("openai", TURN, {"temperature": "warm"}),
    "/v1/completions": ("openai", {"prompt": "hi"}, {"temperature": "warm"}),
    "/v1/responses": ("openai", {"input": "hi"}, {"temperature": "warm"}),
    "/v1/messages": ("anthropic", {**TURN, "max_tokens": 4}, {"temperature": "warm"}),
    "/api/chat": ("ollama", {**TURN, "stream": False}, {"options": {"temperature": "warm"}}),
    "/api/generate": ("ollama", {"prompt": "hi", "stream": False}, {"options": {"temperature": "warm"}}),
}
"""The envelope's name, a body that is served, and a field of it that is malformed."""
INQUIRIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "/v1/responses/input_tokens": ("openai", {"input": "hi"}, {"input": 7}),
    "/v1/messages/count_tokens": ("anthropic", TURN, {"messages": 7}),
    "/tokenize": ("openai", {"prompt": "hi"}, {"prompt": 7}),
    "/v1/detokenize": ("openai", {"tokens": [1]}, {"tokens": 7}),
    "/apply-template": ("openai", TURN, {"messages": 7}),
    "/v1/decisions": ("openai", {"input": "x", "questions": []}, {"questions": [BOTH_KINDS]}),
    "/v1/systemone": ("openai", {"state": "x", "questions": {}}, {"questions": 7}),
    "/api/show": ("ollama", {"model": "m"}, {"model": 7}),
}
EVERYWHERE = {**ENDPOINTS, **INQUIRIES}
WORDS = {
    400: ("invalid_request_error", "invalid_request_error"),
    401: ("authentication_error", "authentication_error"),
    404: ("invalid_request_error", "not_found_error"),
    405: ("invalid_request_error", "invalid_request_error"),
    413: ("invalid_request_error", "request_too_large"),
    415: ("invalid_request_error", "invalid_request_error"),
    429: ("rate_limit_error", "rate_limit_error"),
    500: ("server_error", "api_error"),
    503: ("server_error", "overloaded_error"),
}
"""Of each status: the error's type in OpenAI's envelope and in Anthropic's."""


def check(name: str, answered: Answered, status: int) -> str:
    """The message of an error in the dialect's envelope."""
    assert answered.status == status, answered.body
    for header in ("x-request-id", "request-id", "x-typesafe-request-id"):
        assert answered.headers[header]
    told = json.loads(answered.body)
    match name:
        case "openai":
            assert told.keys() == {"error"}
            assert told["error"].keys() == {"message", "type", "param", "code"}
            assert told["error"]["type"] == WORDS[status][0]
        case "anthropic":
            assert told["type"] == "error"
            assert told["request_id"] == answered.headers["request-id"]
            assert told["error"]["type"] == WORDS[status][1]
        case _:
            assert told.keys() == {"error"}
            assert isinstance(told["error"], str)
            return str(told["error"])
    return str(told["error"]["message"])


@contextmanager
def serving(*items: ScriptItem, settings: HttpSettings | None = None) -> Iterator[Application]:
    def script(request: Request) -> Iterator[ScriptItem]:
        yield from items or reply_events(["hi"])

    dialects = [
        openai_dialect(),
        anthropic_dialect(),
        vllm_dialect(),
        llamacpp_dialect(),
        decisions_dialect(),
        ollama_dialect(),
    ]
    app = create_app(
        engine=ScriptedEngine(MODEL, script),
        model=MODEL,
        dialects=dialects,
        auth=[KeySource(flags=["k"])],
        settings=settings,
        tokenizer=ToyTokenizer(),
    )
    try:
        yield app
    finally:
        app.close()


def post(app: Application, path: str, body: dict[str, Any], **headers: str) -> Answered:
    return ask(app, "POST", path, body=json.dumps(body).encode(), headers={**KEY, **headers})


@pytest.mark.parametrize("path", EVERYWHERE)
def test_what_comes_before_a_body_is_read(path: str) -> None:
    name, body, _ = EVERYWHERE[path]
    with serving(settings=HttpSettings(max_body=200)) as app:
        nobody = ask(app, "POST", path, body=json.dumps(body).encode())
        check(name, nobody, 401)
        assert nobody.headers["www-authenticate"] == "Bearer"
        wrong = ask(app, "PATCH", path, headers=KEY)
        check(name, wrong, 405)
        assert "POST" in wrong.headers["allow"]
        check(name, ask(app, "POST", f"{path}/nothing/here", body=b"{}", headers=KEY), 404)
        check(name, post(app, path, {**body, "padding": "x" * 300}), 413)
        check(name, ask(app, "POST", path, body=b"a=b", headers={**KEY, "content-type": "text/plain"}), 415)
        check(name, post(app, path, body, **{"content-encoding": "zstd"}), 415)


@pytest.mark.parametrize("path", EVERYWHERE)
def test_a_malformed_body_and_a_malformed_field(path: str) -> None:
    name, body, wrong = EVERYWHERE[path]
    with serving() as app:
        check(name, ask(app, "POST", path, body=b'{"model":', headers=KEY), 400)
        message = check(name, post(app, path, {**body, **wrong}), 400)
    assert next(iter(wrong)) in message


def refusals() -> list[tuple[RequestError, str | None, str | None]]:
    """An error of the engine, and what `Retry-After` and `x-should-retry` then say."""
    return [
        (Rejected("the queue is full", status=429, retry_after=7), "7", "true"),
        (Rejected("the queue is full", status=429, retry_after=7000), "60", "true"),
        (Rejected("the server is shutting down"), "1", "true"),
        (GenerationFailed("the round failed"), None, None),
        (GenerationFailed("a loop", code="loop_detected"), None, "false"),
    ]


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(("error", "wait", "again"), refusals())
def test_what_the_engine_refuses_or_fails(path: str, error: RequestError, wait: str | None, again: str | None) -> None:
    """A wait is short, for SDKs give up on long ones or hang; what would fail again is not asked for again."""
    name, body, _ = ENDPOINTS[path]
    items = (error,) if isinstance(error, Rejected) else (Queued(1), TextDelta(0, "x"), error)
    with serving(*items) as app:
        answered = post(app, path, body)
    assert check(name, answered, error.status) == error.message
    assert (answered.headers.get("retry-after"), answered.headers.get("x-should-retry")) == (wait, again)


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_refusal_before_a_stream_opens_has_its_status(path: str) -> None:
    name, body, _ = ENDPOINTS[path]
    with serving(Rejected("the queue is full", status=429)) as app:
        check(name, post(app, path, {**body, "stream": True}), 429)


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_failure_behind_the_first_text_ends_the_stream_in_the_dialects_words(path: str) -> None:
    """The status has been sent: an event says it, and then the dialect's own end."""
    name, body, _ = ENDPOINTS[path]
    with serving(Queued(1), TextDelta(0, "quokka"), GenerationFailed("the round failed")) as app:
        answered = post(app, path, {**body, "stream": True})
    assert answered.status == 200
    text = answered.body.decode()
    assert text.index("quokka") < text.index("the round failed")
    lines = [line for line in text.splitlines() if line]
    match name, path:
        case "ollama", _:
            assert json.loads(lines[-1]) == {"error": "the round failed"}
        case "anthropic", _:
            event, data = lines[-2:]
            assert event == "event: error"
            error = json.loads(data.removeprefix("data: "))
            assert error == {"type": "error", "error": {"type": "api_error", "message": "the round failed"}}
        case _, "/v1/responses":
            last = json.loads([line for line in lines if line.startswith("data: {")][-1].removeprefix("data: "))
            assert last["type"] == "response.failed"
            assert last["response"]["status"] == "failed"
            assert last["response"]["error"] == {"code": "server_error", "message": "the round failed"}
        case _:
            error, done = (line.removeprefix("data: ") for line in lines[-2:])
            expected = {"message": "the round failed", "type": "server_error", "param": None, "code": None}
            assert (json.loads(error), done) == ({"error": expected}, "[DONE]")


@pytest.mark.parametrize("name", ["openai", "anthropic", "vllm", "llamacpp", "decisions", "ollama"])
def test_a_dialect_that_is_left_out_leaves_no_route(name: str) -> None:
    """What is at its paths is nothing, told in the envelope of a dialect that is there."""
    every = {
        each.name: each
        for each in (
            openai_dialect(),
            anthropic_dialect(),
            vllm_dialect(),
            llamacpp_dialect(),
            decisions_dialect(),
            ollama_dialect(),
        )
    }
    gone = every.pop(name)
    engine = ScriptedEngine(MODEL, lambda request: reply_events(["hi"]))
    app = create_app(engine=engine, model=MODEL, dialects=list(every.values()), tokenizer=ToyTokenizer())
    try:
        paths = [*(each.path for each in gone.endpoints), *(each.path for each in gone.inquiries)]
        described = json.loads(ask(app, "GET", "/openapi.json").body)["paths"]
        assert paths
        assert described.keys().isdisjoint(paths)
        for path in paths:
            answered = ask(app, "POST", path, body=b"{}")
            assert answered.status == 404, path
            assert "error" in json.loads(answered.body)
        for other in every.values():
            assert described.keys() >= {each.path for each in other.endpoints}
            assert described.keys() >= {each.path for each in other.inquiries}
    finally:
        app.close()

"""Faults that users of other servers have reported, tried on every route of all dialects together."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPResponse
from itertools import pairwise
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from tensorfold.contracts.dialect import Dialect
from tensorfold.contracts.observe import Outcome
from tensorfold.http import Application, HttpSettings, create_app
from tensorfold.ir import Request
from tensorfold.testing.asgi import ask
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scripted import Script
from tensorfold.testing.scripted_engine import ScriptedEngine
from tensorfold.testing.serving import served
from tensorfold.testing.toy_engine import toy_engine
from tensorfold_auth_keys.source import KeySource
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_decisions import decisions_dialect
from tensorfold_dialect_llamacpp import llamacpp_dialect
from tensorfold_dialect_ollama import ollama_dialect
from tensorfold_dialect_openai import openai_dialect
from tensorfold_dialect_vllm import vllm_dialect

KEY = "k" * 20


def dialects() -> list[Dialect]:
    return [
        *(openai_dialect(), anthropic_dialect(), vllm_dialect()),
        *(llamacpp_dialect(), ollama_dialect(), decisions_dialect()),
    ]


def application(**more: Any) -> Application:
    engine = ScriptedEngine(MODEL, lambda request: reply_events(["ok"], request.choices))
    return create_app(engine=engine, model=MODEL, dialects=dialects(), **more)


@pytest.fixture
def app() -> Iterator[Application]:
    made = application()
    yield made
    made.close()


def posting(made: Application) -> list[str]:
    """Every path that takes a body, as the API's own description lists them."""
    document = json.loads(ask(made, "GET", "/openapi.json").body)
    return sorted(path for path, methods in document["paths"].items() if "post" in methods)


def every_route() -> list[tuple[str, str]]:
    """Every method of every path."""
    made = application()
    document = json.loads(ask(made, "GET", "/openapi.json").body)
    made.close()
    return [
        (method.upper(), path.replace("{id}", "x").replace("{id:path}", "x"))
        for path, methods in document["paths"].items()
        for method in methods
    ]


POSTING = sorted({path for method, path in every_route() if method == "POST"})


def envelope(path: str, body: bytes) -> str:
    """The message of an error, in the envelope that the path's API has."""
    error: dict[str, Any] = json.loads(body.decode("utf-8"))
    if path.startswith("/v1/messages"):
        assert error["type"] == "error"
        assert error["error"]["type"]
        return str(error["error"]["message"])
    if path.startswith("/api/"):
        return str(error["error"])
    assert set(error["error"]) >= {"message", "type"}
    return str(error["error"]["message"])


# ---- keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), every_route())
@pytest.mark.parametrize("spelt", [str, str.upper, lambda path: path + "/", lambda path: "/" + path], ids=range(4))
def test_no_route_of_any_dialect_is_open_without_a_key(method: str, path: str, spelt: Any) -> None:
    """AU-01, AU-02: a walk over every route and method, and other spellings of each, finds `/health` open and no other."""
    answered = ask(application(auth=[KeySource(flags=[KEY])]), method, spelt(path))
    if path == "/health" and (answered.status == 200 or spelt is str):
        assert (answered.status, json.loads(answered.body)) == (200, {"status": "ok"})
        return
    assert answered.status == 401
    assert answered.headers["www-authenticate"] == "Bearer"
    if spelt is str:
        assert envelope(path, answered.body)


def test_the_body_of_a_refused_request_is_not_read_as_the_next_one() -> None:
    """AU-06: on one connection a refusal, and then a request that is answered; or the connection says that it ends."""
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
    heads = [
        (b"POST /v1/chat/completions", b"x-api-key: wrong\r\nContent-Type: application/json\r\n", 401),
        (b"POST /nothing", b"x-api-key: %s\r\n" % KEY.encode(), 404),
        (b"PUT /v1/chat/completions", b"x-api-key: %s\r\n" % KEY.encode(), 405),
        (b"POST /v1/chat/completions", b"x-api-key: %s\r\nContent-Type: text/plain\r\n" % KEY.encode(), 415),
    ]
    with served(application(auth=[KeySource(flags=[KEY])])) as url:
        address = httpx.URL(url)
        for line, headers, status in heads:
            with socket.create_connection((address.host, address.port or 80), timeout=20) as connection:
                head = line + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n" % (len(body), headers)
                connection.sendall(head + body)
                refused = HTTPResponse(connection)
                refused.begin()
                assert refused.status == status
                # Its head and its body may come one by one.
                assert refused.read()
                if refused.will_close:
                    continue
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert connection.recv(65536).startswith(b"HTTP/1.1 200")


# ---- bodies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b'{"model":', b"[]", b"null", b'"x"', b"{}", b"", b"\xff", b"[" * 5000, b"{" * 5000])
@pytest.mark.parametrize("path", POSTING)
def test_a_broken_body_is_a_400_in_the_routes_own_envelope(app: Application, path: str, body: bytes) -> None:
    """BR-02: on every route that takes a body; an empty object may be one that a route can answer."""
    answered = ask(app, "POST", path, body=body)
    if body == b"{}" and path.startswith("/api/"):
        assert answered.status < 500
        return
    assert answered.status == 400, answered.body
    message = envelope(path, answered.body)
    assert not any(word in message for word in ("NoneType", "has no attribute", "Traceback", "object at 0x"))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", rb'{"model":"m","max_tokens":4,"messages":[{"role":"user","content":"half \ud83c"}]}'),
        ("/v1/completions", rb'{"model":"m","max_tokens":4,"prompt":"\udc0a"}'),
        ("/v1/messages", rb'{"model":"m","max_tokens":4,"messages":[{"role":"user","content":"b \udf0d"}]}'),
        ("/v1/responses", rb'{"model":"m","input":"\ud83c"}'),
        ("/api/chat", rb'{"model":"m","messages":[{"role":"user","content":"\ud83c"}]}'),
        ("/tokenize", rb'{"prompt":"\ud83c"}'),
    ],
)
def test_half_an_emoji_is_refused_or_served_and_never_a_fault(app: Application, path: str, body: bytes) -> None:
    """BR-01: the answer is UTF-8 in any case, and the next request is answered."""
    answered = ask(app, "POST", path, body=body)
    assert answered.status < 500
    answered.body.decode("utf-8")
    assert ask(app, "GET", "/health").status == 200


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": 42}}}, "response_format"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": 1}}]}]}, "messages"),
    ],
)
def test_a_field_of_a_wrong_type_is_named_without_words_of_ours(
    app: Application, fields: dict[str, Any], named: str
) -> None:
    """BR-03: 400, the field's name, and nothing of the inside."""
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}
    answered = ask(app, "POST", "/v1/chat/completions", body=json.dumps(body).encode())
    assert answered.status == 400
    message = envelope("/v1/chat/completions", answered.body)
    assert named in message or named in str(json.loads(answered.body)["error"]["param"])
    assert not any(word in message for word in ("NoneType", "has no attribute", "Traceback"))


def test_a_huge_message_is_refused_by_its_length(app: Application) -> None:
    """BR-06: over the bound it is a 413 before it is parsed, in the dialect's envelope."""
    small = application(settings=HttpSettings(max_body=100_000))
    for path in ("/v1/chat/completions", "/v1/messages", "/api/chat"):
        answered = ask(small, "POST", path, body=b'{"model": "m", "x": "' + b"x" * 200_000 + b'"}')
        assert answered.status == 413
        assert "100,000 bytes" in envelope(path, answered.body)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", '"nan"', "true", "1e999"])
@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "top_k", "seed"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_no_number_that_is_none_reaches_the_engine(app: Application, path: str, field: str, value: str) -> None:
    """BR-08: each is a 400 whose body is JSON, and the next request is answered."""
    prompt = '"messages":[{"role":"user","content":"x"}]' if "chat" in path else '"prompt":"x"'
    body = f'{{"model":"m","max_tokens":4,{prompt},"{field}":{value}}}'
    answered = ask(app, "POST", path, body=body.encode())
    assert answered.status == 400, answered.body
    envelope(path, answered.body)


def test_a_very_low_temperature_is_as_good_as_none() -> None:
    """BR-09: the reply is the greedy one, and no number overflows on the way to it."""
    engine = toy_engine([Script(tuple(b"the capital"), tuple(b" is Paris."))])
    engine.start()
    app = create_app(engine=engine, model=MODEL, dialects=dialects())
    with served(app) as url, httpx.Client(base_url=url, timeout=20) as client:
        replies = [
            client.post(
                "/v1/completions", json={"prompt": "the capital", "max_tokens": 8, "temperature": heat, "seed": 1}
            ).json()["choices"][0]["text"]
            for heat in (0, 0.0001, 1e-30)
        ]
    assert replies == [" is Pari"] * 3


# ---- counting ---------------------------------------------------------------------------------------------


class Miscounts:
    """An observer and collector whose counters raise."""

    def started(self, request: Request, endpoint: str) -> None:
        raise ValueError("counters can only be incremented by non-negative amounts")

    def ended(self, request: Request, endpoint: str, outcome: Outcome) -> None:
        raise ValueError("counters can only be incremented by non-negative amounts")


def test_a_bad_count_is_logged_and_the_stream_ends_as_it_should() -> None:
    """MT-03: the finish and `[DONE]` come, and no counter goes down between two scrapes."""
    made = application(observers=[Miscounts()])
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "stream": True}).encode()
    scrapes: list[dict[str, float]] = []
    with capture_logs() as logs:
        for _ in range(3):
            answered = ask(made, "POST", "/v1/chat/completions", body=body)
            assert b'"finish_reason":"stop"' in answered.body and answered.body.endswith(b"data: [DONE]\n\n")
            text = ask(made, "GET", "/metrics").body.decode()
            lines = [line.rpartition(" ") for line in text.splitlines() if "_total" in line and line[0] != "#"]
            scrapes.append({name: float(value) for name, _, value in lines})
    made.close()
    assert any("an observer failed" in str(line["event"]) for line in logs)
    for earlier, later in pairwise(scrapes):
        assert all(later[name] >= value for name, value in earlier.items())


# ---- life -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["A/exl3/4bpw", "../x", "/etc/passwd", "A/../../etc", "", "\u0000"])
def test_a_models_name_is_a_name_and_no_path(app: Application, model: str) -> None:
    """ML-03: the loaded model answers under any name, and nothing is looked for on the disk."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "x"}], "max_tokens": 4}).encode()
    answered = ask(app, "POST", "/v1/chat/completions", body=body)
    assert answered.status == 200
    assert json.loads(answered.body)["model"] == MODEL.id


def test_an_application_without_requests_ends_without_a_word() -> None:
    """LC-05: it is made, served and stopped; nothing is logged as a fault, and no thread stays."""
    with capture_logs() as logs, served(application()):
        pass
    assert not [line for line in logs if line["log_level"] in ("error", "critical")]

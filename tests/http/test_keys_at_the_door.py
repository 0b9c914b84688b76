"""Keys over HTTP: asked for on the headers, on every route but health, before a byte of the body is read."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from tensorfold.contracts.auth import Credentials, Principal
from tensorfold.contracts.dialect import Dialect, Resource
from tensorfold.http import HttpSettings, create_app
from tensorfold.http.guard import read_credentials
from tensorfold.testing.asgi import ask
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scripted_engine import ScriptedEngine
from tensorfold_auth_keys.source import KeySource
from tensorfold_dialect_openai import openai_dialect
from tensorfold_dialect_openai.errors import OpenAIErrors

Rig = Callable[..., Any]

ROUTES = [
    ("GET", "/v1/models"),
    ("GET", "/v1/models/quokka"),
    ("GET", "/metrics"),
    ("GET", "/v1/metrics"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("GET", "/outside"),
]


class Plain:
    """A resource outside `/v1`."""

    async def on_get(self, req: object, resp: Any) -> None:
        resp.text = "inside"


def guarded(settings: HttpSettings | None = None, **more: Any) -> Any:
    outside = Dialect(
        name="outside",
        errors=OpenAIErrors(),
        resources=lambda services: [Resource("/outside", Plain()), Resource("/manage", Plain(), scope="admin")],
    )
    engine = ScriptedEngine(MODEL, lambda request: reply_events(["hi"], request.choices))
    return create_app(
        engine=engine,
        model=MODEL,
        dialects=[openai_dialect(), outside],
        auth=more.pop("auth", [KeySource(flags=["k"])]),
        settings=settings,
        **more,
    )


@pytest.mark.requirement("T-015", "Y-195")
@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("actual", ["as it is", "GET", "POST", "DELETE", "OPTIONS", "HEAD", "PROPFIND"])
def test_without_a_key_every_route_and_method_is_a_401(method: str, path: str, actual: str) -> None:
    """With keys configured, every route but `/health` asks for a key, whatever the method, also routes of plugins."""
    answered = ask(guarded(), method if actual == "as it is" else actual, path)
    assert answered.status == 401 or (actual == "PROPFIND" and answered.status == 400)
    assert answered.status == 400 or answered.headers["www-authenticate"] == "Bearer"


@pytest.mark.requirement("T-015")
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/V1/models",
        "//v1/models",
        "/v1/models/",
        "/v1//models",
        "/tokenize",
        "/v1/chat/completions/",
        "/health/",
    ],
)
def test_without_a_key_a_path_that_is_no_route_is_a_401_too(path: str) -> None:
    """Spelling a path otherwise opens nothing, and tells nothing of what is there."""
    assert ask(guarded(), "GET", path).status == 401


@pytest.mark.requirement("T-010", "T-011", "Y-178")
@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("headers", [{"authorization": "Bearer k"}, {"x-api-key": "k"}], ids=["bearer", "x-api-key"])
def test_a_key_opens_every_route_in_either_header(method: str, path: str, headers: dict[str, str]) -> None:
    """`Authorization: Bearer KEY` and `x-api-key: KEY` are both accepted on every route."""
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode() if method == "POST" else b""
    assert ask(guarded(), method, path, headers=headers, body=body).status == 200


@pytest.mark.requirement("T-012", "T-013", "T-014")
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"x-api-key": "wrong"}])
def test_a_missing_or_wrong_key_is_a_401_in_the_routes_own_envelope(headers: dict[str, str]) -> None:
    """401 with `WWW-Authenticate: Bearer`, and OpenAI's error format on OpenAI's routes."""
    answered = ask(guarded(), "POST", "/v1/chat/completions", headers=headers)
    assert answered.status == 401
    assert answered.headers["www-authenticate"] == "Bearer"
    error = json.loads(answered.body)["error"]
    assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("Bearer k", 200),
        ("bearer k", 200),
        ("BEARER k", 200),
        ("Bearer  k", 200),
        ("Bearer", 401),
        ("Bearer ", 401),
        ("Basic k", 401),
        ("k", 401),
        ("Bearerk", 401),
        ("Bearer K", 401),
        ("Bearer k k", 401),
        ("Bearer ключ", 401),
        ("\t", 401),
    ],
)
def test_the_schemes_case_does_not_matter_and_the_keys_does(value: str, status: int) -> None:
    assert ask(guarded(), "GET", "/v1/models", headers={"authorization": value}).status == status


def test_a_header_that_comes_twice_offers_nothing() -> None:
    twice = [(b"authorization", b"Bearer k"), (b"authorization", b"Bearer other")]
    assert read_credentials(twice) == Credentials(None, None)
    assert read_credentials([*twice, (b"x-api-key", b"k")]) == Credentials(None, "k")


@pytest.mark.requirement("T-019", "Y-201")
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_without_keys_every_route_is_open(method: str, path: str) -> None:
    """No keys configured: nothing asks for one."""
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode() if method == "POST" else b""
    assert ask(guarded(auth=[KeySource()]), method, path, body=body).status == 200


@pytest.mark.requirement("T-016")
def test_metrics_open_opens_both_metrics_routes_and_no_other() -> None:
    """`--metrics-open` opens `/metrics` and `/v1/metrics`."""
    app = guarded(HttpSettings(metrics_open=True))
    assert [ask(app, "GET", path).status for path in ("/metrics", "/v1/metrics", "/v1/models")] == [200, 200, 401]


class Office:
    """Knows an administrator and a guest."""

    name = "office"
    guards = True
    description = "two people"

    def identify(self, credentials: Credentials) -> Principal | None:
        match credentials.bearer:
            case "boss":
                return Principal("boss", "admin")
            case "guest":
                return Principal("guest")
            case _:
                return None

    def refresh(self) -> None: ...

    def reload(self) -> None: ...


def test_an_admin_route_needs_an_admin_key() -> None:
    app = guarded(auth=[Office(), KeySource(flags=["k"])])
    statuses = [
        ask(app, "GET", "/manage", headers={"authorization": f"Bearer {key}"}).status
        for key in ("boss", "guest", "k", "x")
    ]
    assert statuses == [200, 403, 403, 401]


def test_several_sources_add_up() -> None:
    app = guarded(auth=[Office(), KeySource(flags=["k"]), KeySource()])
    for key in ("boss", "guest", "k"):
        assert ask(app, "GET", "/v1/models", headers={"authorization": f"Bearer {key}"}).status == 200


@pytest.mark.requirement("T-025", "T-026")
def test_logs_and_metrics_have_the_label_and_never_a_key_or_digest() -> None:
    """The log line and `tensorfold:requests_total` carry the key's label, and neither key nor digest."""
    import hashlib

    source = KeySource(flags=["sk-very-secret"])
    app = guarded(auth=[source])
    body = b'{"messages": [{"role": "user", "content": "a private matter"}]}'
    with capture_logs() as lines:
        for key in ("sk-very-secret", "sk-wrong-secret"):
            ask(app, "POST", "/v1/chat/completions", headers={"authorization": f"Bearer {key}"}, body=body)
    metrics = ask(app, "GET", "/metrics", headers={"x-api-key": "sk-very-secret"}).body.decode()
    told = repr(lines) + metrics
    assert [line.get("label") for line in lines if line["event"] == "request"] == ["cli-1", None]
    assert 'tensorfold:requests_total{endpoint="/v1/chat/completions",label="cli-1",status="200"} 1.0' in metrics
    assert 'label="",status="401"' in metrics
    for secret in ("very-secret", "wrong-secret", "private", hashlib.sha256(b"sk-very-secret").hexdigest()[:12]):
        assert secret not in told


def test_a_refused_request_is_answered_before_its_body_is_sent(
    rig: Rig, connect: Callable[[httpx.Client], socket.socket]
) -> None:
    with rig(auth=[KeySource(flags=["k"])]).serve() as client:
        connection = connect(client)
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n"
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    ("request_line", "headers", "status"),
    [
        (b"POST /v1/chat/completions", b"Authorization: Bearer wrong\r\nContent-Type: application/json\r\n", b"401"),
        (b"POST /nothing", b"Authorization: Bearer k\r\n", b"404"),
        (b"PUT /v1/chat/completions", b"Authorization: Bearer k\r\n", b"405"),
        (b"POST /v1/chat/completions", b"Authorization: Bearer k\r\nContent-Type: text/plain\r\n", b"415"),
    ],
)
def test_the_body_of_a_refused_request_is_not_read_as_the_next_request(
    rig: Rig, connect: Callable[[httpx.Client], socket.socket], request_line: bytes, headers: bytes, status: bytes
) -> None:
    body = b'{"messages": []}' + b" " * 50_000
    with rig(auth=[KeySource(flags=["k"])]).serve() as client:
        connection = connect(client)
        head = request_line + b" HTTP/1.1\r\nHost: x\r\n" + headers + b"Content-Length: %d\r\n\r\n" % len(body)
        connection.sendall(head + body + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = b""
        while piece := connection.recv(65536):
            received += piece
        assert received.startswith(b"HTTP/1.1 " + status)
        assert received.count(b"HTTP/1.1 ") == 2
        assert received.endswith(b'{"status":"ok"}')


@pytest.mark.requirement("T-021", "T-022")
def test_replacing_the_key_file_rotates_the_keys_of_a_running_server(rig: Rig, tmp_path: Path) -> None:
    """An atomic replacement of the file takes effect within about a second, without a restart."""
    import os
    import time

    file, fresh = tmp_path / "keys", tmp_path / "fresh"
    for path, key in ((file, "old"), (fresh, "new")):
        path.touch(0o600)
        path.write_text(key)

    def status(key: str) -> int:
        return int(client.get("/v1/models", headers={"x-api-key": key}).status_code)

    with rig(auth=[KeySource(file=file)]).serve(refresh_seconds=0.05) as client:
        assert (status("old"), status("new")) == (200, 401)
        os.replace(fresh, file)
        give_up = time.monotonic() + 20
        while status("new") != 200 and time.monotonic() < give_up:
            time.sleep(0.05)
        assert (status("old"), status("new")) == (401, 200)

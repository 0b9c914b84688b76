"""Web pages: none may use the server unless its origin is listed, under whatever name it reaches it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tensorfold.http import HttpSettings
from tensorfold.http.origins import is_own_name
from tensorfold.testing.asgi import Answered, ask
from tensorfold_auth_keys.source import KeySource

Rig = Callable[..., Any]

PAGE = "https://app.example"
ASKS = {"origin": PAGE, "access-control-request-method": "POST"}


def names(answered: Answered) -> set[str]:
    return {name for name in answered.headers if name.startswith("access-control-")}


def post(app: Any, chat: dict[str, Any], **headers: str) -> Answered:
    return ask(app, "POST", "/v1/chat/completions", body=json.dumps(chat).encode(), headers=headers)


def test_without_a_list_no_page_is_told_anything(rig: Rig, chat: dict[str, Any]) -> None:
    app = rig().app
    assert names(post(app, chat, origin=PAGE)) == set()
    preflight = ask(app, "OPTIONS", "/v1/chat/completions", headers=ASKS)
    assert preflight.status >= 400 or not names(preflight)
    assert not names(preflight)


def test_a_listed_origin_may_read_answers_and_errors(rig: Rig, chat: dict[str, Any]) -> None:
    app = rig(settings=HttpSettings(cors_origins=(PAGE + "/",))).app
    answered = post(app, chat, origin=PAGE)
    assert (answered.status, answered.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "x-request-id" in answered.headers["access-control-expose-headers"]
    assert "origin" in answered.headers["vary"].lower()
    refused = post(app, {"messages": 3}, origin=PAGE)
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (400, PAGE)
    assert names(post(app, chat, origin="https://evil.example")) == set()
    assert names(post(app, chat)) == set()


def test_a_preflight_needs_no_key_and_opens_nothing(rig: Rig, chat: dict[str, Any]) -> None:
    """Browsers send it without credentials; the request that follows is asked for its key."""
    made = rig(settings=HttpSettings(cors_origins=(PAGE,)), auth=[KeySource(flags=["k"])])
    asks = {**ASKS, "access-control-request-headers": "authorization,x-stainless-os"}
    preflight = ask(made.app, "OPTIONS", "/v1/chat/completions", headers=asks)
    assert (preflight.status, preflight.body) == (204, b"")
    assert preflight.headers["access-control-allow-headers"] == "authorization,x-stainless-os"
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert ask(made.app, "OPTIONS", "/v1/models", headers={**ASKS, "origin": "https://evil.example"}).status == 401
    refused = post(made.app, chat, origin=PAGE)
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, PAGE)
    assert made.engine.requests == []
    assert post(made.app, chat, origin=PAGE, authorization="Bearer k").status == 200


def test_a_star_lists_every_origin(rig: Rig, chat: dict[str, Any]) -> None:
    app = rig(settings=HttpSettings(cors_origins=("*",))).app
    assert post(app, chat, origin=PAGE).headers["access-control-allow-origin"] == PAGE
    private = ask(app, "OPTIONS", "/", headers={**ASKS, "access-control-request-private-network": "true"})
    assert private.headers["access-control-allow-private-network"] == "true"


@pytest.mark.parametrize("type", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_page_cannot_ask_without_permission_by_hiding_what_it_sends(rig: Rig, type: str) -> None:
    """What a browser sends unasked has one of these types, or none: such a body is not read."""
    made = rig()
    body = json.dumps({"prompt": "x"}).encode()
    answered = ask(
        made.app, "POST", "/v1/completions", body=body, headers={"content-type": type, "origin": "https://evil.example"}
    )
    assert answered.status == 415
    assert made.engine.requests == []


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("localhost", True),
        ("LOCALHOST:8080", True),
        ("api.localhost", True),
        ("127.0.0.1:8080", True),
        ("127.9.9.9", True),
        ("[::1]:8080", True),
        ("mine.example:443", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("192.168.0.7:8080", False),
        ("[fe80::1]", False),
        ("", False),
        ("\xff", False),
    ],
)
def test_a_server_on_this_machine_is_reached_under_its_own_names_alone(host: str, own: bool) -> None:
    assert is_own_name(host.encode("latin-1"), ["mine.example"]) is own


def test_a_foreign_name_is_refused_on_every_route_in_its_own_envelope(rig: Rig, chat: dict[str, Any]) -> None:
    made = rig(settings=HttpSettings(allowed_hosts=()))
    answered = post(made.app, chat, host="evil.example")
    assert answered.status == 403
    error = json.loads(answered.body)["error"]
    assert (error["code"], error["type"]) == ("host_not_allowed", "permission_error")
    assert ask(made.app, "GET", "/health", headers={"host": "evil.example"}).status == 403
    assert made.engine.requests == []
    assert post(made.app, chat, host="localhost:8080").status == 200

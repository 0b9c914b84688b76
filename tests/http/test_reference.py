"""`/openapi.json` and `/docs`: made of the routes that are there."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tensorfold.contracts.dialect import Dialect, InquiryEndpoint
from tensorfold.http import Application, create_app
from tensorfold.testing.asgi import Answered, ask
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scripted_engine import ScriptedEngine
from tensorfold_auth_keys.source import KeySource
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_decisions import decisions_dialect
from tensorfold_dialect_llamacpp import llamacpp_dialect
from tensorfold_dialect_ollama import ollama_dialect
from tensorfold_dialect_openai import openai_dialect
from tensorfold_dialect_vllm import vllm_dialect

EVERY = (
    anthropic_dialect(),
    decisions_dialect(),
    llamacpp_dialect(),
    ollama_dialect(),
    openai_dialect(),
    vllm_dialect(),
)


def application(dialects: Sequence[Dialect], *keys: str) -> Application:
    engine = ScriptedEngine(MODEL, lambda request: reply_events(["ok"]))
    auth = [KeySource(flags=list(keys))] if keys else []
    return create_app(engine=engine, model=MODEL, dialects=dialects, auth=auth)


def fetched(app: Application, path: str, **headers: str) -> Answered:
    answered = ask(app, "GET", path, headers=headers)
    app.close()
    return answered


def document(dialects: Sequence[Dialect]) -> dict[str, Any]:
    answered = fetched(application(dialects), "/openapi.json")
    assert answered.status == 200
    read: dict[str, Any] = json.loads(answered.body)
    return read


@pytest.mark.requirement("Y-007")
def test_every_route_is_described() -> None:
    """The documentation is generated from the enabled dialects, with each body's schema."""
    told = document(EVERY)
    assert told["openapi"].startswith("3.1")
    paths = told["paths"]
    for path in (
        "/health",
        "/v1/models/{id}",
        "/v1/chat/completions",
        "/v1/messages",
        "/tokenize",
        "/props",
        "/api/chat",
    ):
        assert path in paths
    assert set(paths["/v1/responses/{id}"]) == {"get", "delete"}
    assert paths["/v1/responses/{id}"]["get"]["parameters"][0]["name"] == "id"
    posts = {path: entry["post"] for path, entry in paths.items() if "post" in entry}
    assert len(posts) >= 14
    for path, operation in posts.items():
        assert operation["summary"], path
        assert operation["requestBody"]["content"]["application/json"]["schema"], path
    assert "text/event-stream" in posts["/v1/messages"]["responses"]["200"]["content"]
    assert len({operation["operationId"] for entry in paths.values() for operation in entry.values()}) >= len(paths)


def test_every_reference_leads_to_a_type() -> None:
    told = document(EVERY)
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(told)))
    assert references <= set(told["components"]["schemas"])
    assert references


def test_a_dialect_that_is_left_out_leaves_nothing() -> None:
    told = document([openai_dialect()])
    assert not any(path.startswith(("/api", "/v1/messages", "/tokenize", "/props")) for path in told["paths"])
    assert not any("anthropic" in name for name in told["components"]["schemas"])
    assert "securitySchemes" not in told["components"]


def test_without_dialects_the_core_describes_itself() -> None:
    assert set(document([])["paths"]) >= {"/health", "/metrics", "/v1/models"}


@pytest.mark.parametrize("path", ["/openapi.json", "/docs"])
def test_both_ask_for_a_key_when_keys_are_set(path: str) -> None:
    assert fetched(application(EVERY, "sk-test"), path).status == 401
    answered = fetched(application(EVERY, "sk-test"), path, authorization="Bearer sk-test")
    assert answered.status == 200
    assert b"x-api-key" in answered.body or path == "/docs"


@pytest.mark.requirement("Y-007")
def test_the_page_loads_nothing_from_anywhere() -> None:
    """One page without scripts, styles or images from elsewhere."""
    answered = fetched(application(EVERY), "/docs")
    page = answered.body.decode()
    assert answered.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answered.headers["content-security-policy"]
    for word in ("http://", "https://", "<script", "<link", "<img", "@import", "url("):
        assert word not in page
    for path in ("/v1/chat/completions", "/v1/decisions", "/api/tags"):
        assert f"<code>{path}</code>" in page


class Sizes(msgspec.Struct):
    """Some fields of a body."""

    height: int


class Names(msgspec.Struct):
    """Its other fields."""

    name: str


class Undescribed(msgspec.Struct):
    """A type whose default is no JSON."""

    rest: msgspec.Raw = msgspec.Raw(b"")


def test_a_body_may_be_several_types_together_and_one_without_a_schema_stays_undescribed() -> None:
    codec = vllm_dialect().inquiries[0].codec
    together = InquiryEndpoint("/together", codec, bodies=((Sizes, Names),), about="both")
    unknown = InquiryEndpoint("/unknown", codec, bodies=(Undescribed,), about="any")
    told = document([Dialect(name="acme", errors=codec, inquiries=(together, unknown))])

    def schema(path: str) -> Any:
        return told["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]

    assert schema("/together") == {
        "allOf": [{"$ref": "#/components/schemas/Sizes"}, {"$ref": "#/components/schemas/Names"}]
    }
    assert schema("/unknown") == {}

"""What a server tells: no key and no prompt in its logs, no path of a request is opened, and its headers."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from tensorfold.engine.engine import LocalEngine
from tensorfold.http import create_app
from tensorfold.observe import configure_logs
from tensorfold.plugins import Plugins, Wanted
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.plugins import default_settings
from tensorfold.testing.scripted import Script, raises
from tensorfold.testing.serving import served
from tensorfold.testing.toy_engine import toy_engine
from tensorfold.testing.toy_tokenizer import ToyTokenizer
from tensorfold_auth_keys.source import KeySource

KEY = "sk-the-only-key"
SECRET = "wombat-in-the-cellar"
PATHS = (
    "../../../../etc/wombat",
    "/etc/wombat",
    "file:///etc/wombat",
    "..\\..\\wombat",
    "wombat\x00.json",
    "~root/wombat",
    "%2e%2e%2fwombat",
)
HEADERS = {"authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def engine() -> LocalEngine:
    return toy_engine([Script(tuple(f"{SECRET} fails".encode()), tuple(b"abc"), at={1: raises(RuntimeError("no"))})])


@pytest.fixture(scope="module")
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure_logs("json", "info", stream)
    yield stream
    structlog.reset_defaults()


@pytest.fixture(scope="module")
def client(engine: LocalEngine, log: io.StringIO) -> Iterator[httpx.Client]:
    """A server with a key, and every dialect that is installed."""
    plugins = Plugins(Wanted())
    dialects = [offered.value for offered in plugins.dialects(default_settings(plugins))]
    tokenizer = ToyTokenizer()
    model = dataclasses.replace(MODEL, window=engine.window, vocabulary=tokenizer.size)
    engine.start()
    app = create_app(engine=engine, model=model, dialects=dialects, auth=[KeySource(flags=[KEY])], tokenizer=tokenizer)
    with served(app) as url, httpx.Client(base_url=url, timeout=60) as made:
        yield made


def bodies(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A body for each endpoint, with this text wherever a text may stand."""
    message = {"role": "user", "content": text}
    common = {"model": text, "user": text, "metadata": {text: text}, "stop": [text], "max_tokens": 4}
    yield "/v1/chat/completions", {**common, "messages": [{**message, "name": text}]}
    yield (
        "/v1/chat/completions",
        {**common, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": text}}]}]},
    )
    yield "/v1/chat/completions", {**common, "messages": [message], "response_format": {"type": text}}
    yield (
        "/v1/chat/completions",
        {**common, "messages": [message], "chat_template": text, "chat_template_kwargs": {text: text}},
    )
    yield "/v1/completions", {**common, "prompt": text, "suffix": text}
    yield "/v1/responses", {"input": text, "previous_response_id": text, "max_output_tokens": 4}
    yield "/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": text}]}]}
    yield (
        "/v1/messages",
        {"model": text, "max_tokens": 4, "system": text, "messages": [message], "stop_sequences": [text]},
    )
    yield "/v1/messages/count_tokens", {"model": text, "messages": [message]}
    yield "/api/chat", {"model": text, "messages": [{**message, "images": [text]}], "format": text, "keep_alive": text}
    yield "/api/generate", {"model": text, "prompt": text, "template": text, "system": text}
    yield "/api/show", {"model": text, "name": text}
    yield "/tokenize", {"prompt": text, "model": text}


def test_logs_have_no_key_and_no_prompt(client: httpx.Client, log: io.StringIO) -> None:
    """At level info: not of replies, not of refusals, not of failures with their stacks, nor of wrong keys."""
    for path, body in bodies(SECRET):
        for headers in (HEADERS, {"authorization": f"Bearer {SECRET}"}, {"x-api-key": f"{KEY}x"}):
            client.post(path, json=body, headers=headers)
    failed = client.post("/v1/completions", json={"prompt": f"{SECRET} fails"}, headers=HEADERS)
    assert failed.status_code == 500
    client.get(f"/v1/models/{SECRET}", headers=HEADERS)
    client.get("/health", params={"key": KEY, "q": SECRET})
    client.post(
        "/v1/completions",
        content=f'{{"prompt": "{SECRET}'.encode(),
        headers={**HEADERS, "content-type": "application/json"},
    )
    said = log.getvalue()
    assert said.count("\n") > 40
    assert "a request failed" in said
    assert SECRET not in said
    assert KEY not in said
    assert SECRET not in failed.text


def test_no_path_that_a_request_names_is_opened(client: httpx.Client) -> None:
    """In any field of any dialect, in the address, or in a header."""
    opened: list[str] = []
    watching = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event in ("open", "os.listdir", "os.scandir", "import", "subprocess.Popen"):
            opened.append(str(arguments[0]))

    sys.addaudithook(hook)
    try:
        for path in PATHS:
            for endpoint, body in bodies(path):
                answer = client.post(endpoint, json=body, headers=HEADERS)
                assert answer.status_code < 500, (endpoint, path, answer.text)
            printable = path.replace("\x00", "%00")
            assert client.get(f"/v1/models/{printable}", headers=HEADERS).status_code in (400, 404)
            assert client.get(f"/v1/responses/{printable}", headers=HEADERS).status_code in (400, 404, 405)
            client.get("/health", headers={**HEADERS, "x-request-id": printable})
    finally:
        watching = False
    assert not [name for name in opened if "wombat" in name]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/v1/models", 200),
        ("GET", "/docs", 200),
        ("GET", "/nothing", 404),
        ("PUT", "/v1/models", 405),
    ],
)
def test_headers_of_every_answer(client: httpx.Client, method: str, path: str, status: int) -> None:
    """Whose server it is, is not told; browsers are told to guess no type."""
    answer = client.request(method, path, headers=HEADERS)
    assert answer.status_code == status
    assert "server" not in answer.headers
    assert "x-powered-by" not in answer.headers
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in answer.headers


def test_answers_that_hold_replies_are_kept_by_no_cache(client: httpx.Client) -> None:
    with client.stream(
        "POST", "/v1/completions", json={"prompt": "x", "max_tokens": 2, "stream": True}, headers=HEADERS
    ) as answer:
        assert answer.headers["cache-control"] == "no-cache"
        answer.read()


def test_what_is_promised_is_written_down() -> None:
    """SECURITY.md, and the audit of what we depend on."""
    root = Path(__file__).resolve().parents[2]
    page = (root / "SECURITY.md").read_text(encoding="utf-8")
    for word in ("constant time", "0600", "sandbox", "tox -e audit", "Report"):
        assert word in page, word
    assert "[testenv:audit]" in (root / "tox.ini").read_text(encoding="utf-8")
    assert json.dumps(page)

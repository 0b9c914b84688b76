"""`tensorfold inspect` and `tensorfold replay`, against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tensorfold.cli.program import run
from tensorfold.cli.replay import token_shas
from tensorfold.http import create_app
from tensorfold.http.request_log import RequestLog
from tensorfold.ir import Finished, Queued, Request, Stopped, TextDelta, Timings, Usage
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.scripted_engine import ScriptedEngine, ScriptItem
from tensorfold.testing.serving import served
from tensorfold_auth_keys.source import KeySource
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_ollama import ollama_dialect
from tensorfold_dialect_openai import openai_dialect

KEY = "sk-a-very-secret-key"
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "a long question " * 20 + "\x1b[31m"}],
    "temperature": 0.3,
    "max_tokens": 9,
}


def script(word: str) -> Any:
    def reply(request: Request) -> Iterator[ScriptItem]:
        yield Queued(3)
        yield from (TextDelta(choice, word) for choice in range(request.choices))
        yield from (Stopped(choice, "end") for choice in range(request.choices))
        shas = tuple(f"{choice}{word}" * 8 for choice in range(request.choices))
        yield Finished(Usage(3, request.choices), Timings(), shas)

    return reply


def application(word: str = "yes", folder: Path | None = None) -> Any:
    return create_app(
        engine=ScriptedEngine(MODEL, script(word)),
        model=MODEL,
        dialects=[openai_dialect(), anthropic_dialect(), ollama_dialect()],
        auth=[KeySource(flags=[KEY])],
        request_log=None if folder is None else RequestLog(folder),
    )


def logged(folder: Path, path: str, body: dict[str, Any]) -> Path:
    """The file of one request."""
    with served(application(folder=folder)) as url:
        answer = httpx.post(url + path, json=body, headers={"x-api-key": KEY}, timeout=20)
        assert answer.status_code == 200, answer.text
    (file,) = folder.glob("*.json")
    return file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return logged(tmp_path, "/v1/chat/completions", CHAT)


@pytest.mark.requirement("Y-206")
def test_a_saved_request_is_shown_before_it_is_shared(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`tensorfold inspect FILE` shows settings, texts and answer, and that the file holds whole prompts."""
    assert run(["inspect", str(file)], {}) == 0
    shown = capsys.readouterr().out
    assert "POST /v1/chat/completions" in shown
    assert "setting  temperature = 0.3" in shown and "setting  max_tokens = 9" in shown
    assert "header   x-api-key: (redacted)" in shown
    assert "messages[0]  user: a long question" in shown and "characters)" in shown
    assert "answer   200 end" in shown and "0yes" in shown
    assert "\x1b" not in shown and KEY not in shown
    assert "before you share it" in shown
    assert run(["inspect", str(file), "--full"], {}) == 0
    assert shown.count("question") < capsys.readouterr().out.count("question")


@pytest.mark.requirement("Y-207")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_saved_request_is_asked_again_with_a_key_and_the_raw_answer_is_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], stream: bool
) -> None:
    """`tensorfold replay FILE` sends it to a running server, prints the raw answer and compares the tokens."""
    file = logged(tmp_path, "/v1/chat/completions", {**CHAT, "stream": stream})
    with served(application()) as url:
        assert run(["replay", str(file), "--url", url, "--key", KEY], {}) == 0
    told = capfd.readouterr()
    assert ("data: [DONE]" in told.out) == stream
    assert '"yes"' in told.out
    assert "the same tokens" in told.err


def test_other_tokens_are_told(file: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORFOLD_CLIENT_KEY", KEY)
    with served(application("no")) as url:
        assert run(["replay", str(file), "--url", url], {}) == 1
    assert "other tokens" in capfd.readouterr().err


def test_a_refusal_is_told(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with served(application()) as url:
        assert run(["replay", str(file), "--url", url, "--key", "wrong"], {}) == 1
    told = capfd.readouterr()
    assert "the server answered 401" in told.err and "authentication_error" in told.out


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": ["a", "b"], "n": 2}),
        ("/v1/responses", {"input": "hi"}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}),
        ("/api/chat", {"messages": [{"role": "user", "content": "hi"}]}),
    ],
)
def test_every_apis_answers_are_compared(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], path: str, body: dict[str, Any], stream: bool
) -> None:
    file = logged(tmp_path, path, {"model": "m", **body, "stream": stream})
    with served(application()) as url:
        assert run(["replay", str(file), "--url", url, "--key", KEY], {}) == 0
    assert "the same tokens: token_sha 0yes" in capfd.readouterr().err


def test_what_a_model_writes_is_no_token_sha() -> None:
    answer = {"content": [{"input": {"token_sha": "x"}}], "tensorfold": {"token_sha": "y"}}
    assert token_shas(json.dumps(answer).encode()) == ("y",)
    assert token_shas(b'{"arguments": {"token_sha": "x"}}') == ()
    assert token_shas(b"no json") == ()


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"version": 1}', "[" * 100_000])
@pytest.mark.parametrize("command", ["inspect", "replay"])
def test_a_file_of_another_kind_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, content: str
) -> None:
    other = tmp_path / "other.json"
    other.write_text(content)
    assert run([command, str(other)], {}) == 2
    assert capsys.readouterr().err.startswith(f"tensorfold: {other} is no request that --log-requests wrote")

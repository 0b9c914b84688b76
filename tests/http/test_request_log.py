"""`--log-requests`: one file a request, for reports; nothing in it opens a door, and nothing that goes wrong with it is felt."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tensorfold.errors import ConfigError, GenerationFailed
from tensorfold.http import create_app, request_log
from tensorfold.http.request_log import RequestLog
from tensorfold.ir import Finished, Queued, Request, Stopped, TextDelta, Timings, Usage
from tensorfold.observe.recorded import read_record
from tensorfold.testing.asgi import ask
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.scripted_engine import ScriptedEngine, ScriptItem
from tensorfold_auth_keys.source import KeySource
from tensorfold_dialect_openai import openai_dialect

KEY = "sk-a-very-secret-key"
BODY: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief. The api_key field is documented."},
        {"role": "user", "content": f"my key is {KEY}, and this is a question"},
    ],
    "temperature": 0.3,
    "top_p": 0.9,
    "max_tokens": 17,
    "seed": 12345678901234567890,
    "api_key": "another secret",
    "metadata": {"Authorization": "Bearer third"},
}


def script(request: Request) -> Iterator[ScriptItem]:
    yield from (Queued(9), TextDelta(0, "ok"), Stopped(0, "end"))
    yield Finished(Usage(9, 1), Timings(0.0, 0.1, 0.2), ("ab" * 32,))


class Logged:
    """An application that logs its requests."""

    def __init__(self, folder: Path, script: Callable[[Request], Any] = script, **more: Any) -> None:
        self.folder = folder
        engine = ScriptedEngine(MODEL, script)
        log = RequestLog(folder)
        self.app = create_app(engine=engine, model=MODEL, dialects=[openai_dialect()], request_log=log, **more)

    def post(self, body: bytes, path: str = "/v1/chat/completions", **headers: str) -> int:
        return ask(self.app, "POST", path, body=body, headers={"user-agent": "test/1", **headers}).status

    def files(self) -> list[Path]:
        """What was written; the application has ended."""
        self.app.close()
        return sorted(self.folder.iterdir())


@pytest.mark.requirement("Y-202", "Y-203", "Y-204", "Y-205")
def test_a_chat_is_written_with_its_history_and_settings_and_without_keys(tmp_path: Path) -> None:
    """One JSON file a request: the whole history and every parameter; keys are redacted, prompts are kept."""
    logged = Logged(tmp_path / "log", auth=[KeySource(flags=[KEY])])
    assert logged.post(json.dumps(BODY).encode(), authorization=f"Bearer {KEY}", cookie="session=1") == 200
    (file,) = logged.files()
    text = file.read_text()
    for secret in (KEY, "another secret", "third", "session=1"):
        assert secret not in text
    record = read_record(file)
    assert (record.method, record.path, record.model, record.label) == (
        "POST",
        "/v1/chat/completions",
        MODEL.id,
        "cli-1",
    )
    assert isinstance(record.body, dict)
    assert record.body["messages"] == [
        {"role": "system", "content": "Be brief. The api_key field is documented."},
        {"role": "user", "content": "my key is (redacted), and this is a question"},
    ]
    settings = {name: record.body[name] for name in ("temperature", "top_p", "max_tokens", "seed")}
    assert settings == {"temperature": 0.3, "top_p": 0.9, "max_tokens": 17, "seed": 12345678901234567890}
    assert record.body["api_key"] == "(redacted)"
    assert record.headers["authorization"] == record.headers["cookie"] == "(redacted)"
    assert record.headers["user-agent"] == "test/1"
    assert record.answer is not None
    assert (record.answer.status, record.answer.reason, record.answer.token_sha) == (200, "end", ("ab" * 32,))


def test_a_file_and_its_folder_are_its_owners_alone(tmp_path: Path) -> None:
    logged = Logged(tmp_path / "log")
    logged.post(json.dumps(BODY).encode())
    (file,) = logged.files()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert file.suffix == ".json"


@pytest.mark.parametrize("body", [b"{broken", b'{"messages": 3}', b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_refused_is_written_as_it_was(tmp_path: Path, body: bytes) -> None:
    logged = Logged(tmp_path)
    assert logged.post(body) == 400
    record = read_record(logged.files()[0])
    assert record.answer is not None and record.answer.status == 400
    if body == b'{"messages": 3}':
        assert record.body == {"messages": 3}
    else:
        assert record.body is None
        assert record.body_text == body.decode(errors="backslashreplace")


def test_the_file_is_there_while_the_request_is_computed(tmp_path: Path) -> None:
    """What ends the server can be read afterwards: the file is written before the answer, and again behind it."""
    seen: list[bool] = []

    def looks(request: Request) -> Iterator[ScriptItem]:
        yield Queued(1)
        for _ in range(2000):
            if list(tmp_path.glob("*.json")):
                break
            yield 0.005
        (file,) = tmp_path.glob("*.json")
        seen.append(read_record(file).answer is None)
        yield TextDelta(0, "x")
        yield GenerationFailed("broken")

    logged = Logged(tmp_path, looks)
    assert logged.post(json.dumps(BODY).encode()) == 500
    assert seen == [True]
    answer = read_record(logged.files()[0]).answer
    assert answer is not None and answer.status == 500


def test_every_api_that_generates_is_logged_and_nothing_else(tmp_path: Path) -> None:
    logged = Logged(tmp_path)
    assert logged.post(b'{"model": "m", "prompt": "x"}', "/v1/completions") == 200
    assert ask(logged.app, "GET", "/v1/models").status == 200
    assert [read_record(file).path for file in logged.files()] == ["/v1/completions"]


def test_a_full_disk_is_told_once_and_no_request_notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(request_log, "write_private", full)
    with capture_logs() as logs:
        logged = Logged(tmp_path)
        assert [logged.post(json.dumps(BODY).encode()) for _ in range(3)] == [200, 200, 200]
        assert logged.files() == []
    told = [line for line in logs if line["event"] == "requests are not being logged"]
    assert len(told) == 1
    assert "No space left" in told[0]["problem"]


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "there.json"
    target.mkdir()
    with pytest.raises(IsADirectoryError):
        request_log.write_private(target, b"x")
    assert sorted(tmp_path.iterdir()) == [target]


def test_a_folder_that_cannot_be_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="requests cannot be logged to"):
        RequestLog(tmp_path / "file")

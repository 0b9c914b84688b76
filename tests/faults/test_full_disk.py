"""A full disk costs what would have been written, and no request."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, cast

import httpx
import pytest
import structlog

from tensorfold.engine.settings import EngineSettings
from tensorfold.observe import configure_logs
from tensorfold.testing.tiny import TinyModel, write_tiny

from .rig import ASKS, REPLY, rig, script, text_of

FULL = Path("/dev/full")
"""Takes no byte: no space is left on it."""

needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


class Full(io.StringIO):
    """A log on a disk without room."""

    def write(self, text: str, /) -> int:
        raise OSError(28, "No space left on device")


class Lost(io.StringIO):
    """A log whose reader has gone."""

    def flush(self) -> None:
        raise BrokenPipeError


@pytest.mark.parametrize("stream", [Full(), Lost()], ids=["full", "lost"])
def test_a_log_that_cannot_be_written_costs_no_request(stream: TextIO) -> None:
    """Failures in the engine, which are logged with their stacks, included."""
    configure_logs("json", "debug", stream)
    ask = ASKS["chat"]
    with rig([script(ask, "hello"), script(ask, "sick", nan_at=2)]) as server:
        for how in (False, True):
            assert text_of(ask.post(server.client, "hello", stream=how)) == REPLY.decode()
            assert ask.post(server.client, "sick", stream=how).status_code == (200 if how else 500)
        assert server.health()[0] == 200
        server.idle()
    structlog.reset_defaults()


def test_prefixes_that_cannot_be_spilled_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: io.StringIO
) -> None:
    """The folder's disk is full: the reply comes, nothing half written stays, and the log says so."""

    def full(descriptor: int, mode: str) -> object:
        os.close(descriptor)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tensorfold.engine.spill_file.os.fdopen", full)
    ask = ASKS["completions"]
    settings = EngineSettings(spill_folder=tmp_path, spill_bytes=1 << 20, prefix_bytes=1 << 20)
    prompts = [f"a prompt of its own, number {number}, and long enough to be kept" for number in range(3)]
    with rig([script(ask, prompt) for prompt in prompts], settings=settings) as server:
        for prompt in prompts * 2:
            assert text_of(ask.post(server.client, prompt, stream=False)) == REPLY.decode()
        server.idle()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert "No space left on device" in log.getvalue()


@contextlib.contextmanager
def limited_server(folder: Path, limit: int) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """`tensorfold serve` on a tiny model, whose files may be so long and no longer: its log and its kept prompts."""
    model, log = write_tiny(folder / "tiny", TinyModel(window=256)), folder / "log"
    options = ["--port", "0", "--context", "128", "--parallel", "1", "--log-format", "json", "--spill-gib", "0.1"]
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "tensorfold", "serve", str(model), *options, "--spill-dir", str(folder / "spill")],
            stderr=stderr,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),  # noqa: PLW1509
        )
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


@pytest.mark.torch
@pytest.mark.slow
def test_a_server_outlives_its_log(tmp_path: Path) -> None:
    """The file of the log can grow no more: requests are answered, and a signal ends the server with code 0."""
    with limited_server(tmp_path, 4096) as (process, log):
        url = None
        while url is None:
            assert process.poll() is None, log.read_text()
            found = [line for line in log.read_text().splitlines() if "address" in line]
            url = found[0].split()[1].removesuffix("/v1") if found else None
        with httpx.Client(base_url=url, timeout=60) as client:
            replies = {
                client.post(
                    "/v1/completions", json={"prompt": "hello", "max_tokens": 3, "temperature": 0}
                ).text.partition('"choices"')[2]
                for _ in range(40)
            }
            assert all("token" in reply for reply in replies)
            assert log.stat().st_size == 4096
            assert client.get("/health").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not list((tmp_path / "spill").rglob("*.tmp"))


@needs_full
@pytest.mark.torch
@pytest.mark.slow
def test_a_server_starts_and_ends_without_a_place_for_its_words(tmp_path: Path) -> None:
    """Standard error is full from the beginning; the exit code is still 0."""
    model = write_tiny(tmp_path / "tiny", TinyModel(window=256))
    command = [sys.executable, "-m", "tensorfold", "serve", str(model), "--port", "0", "--context", "128"]
    with FULL.open("w") as full:
        process = subprocess.Popen(command, stderr=full)
        try:
            assert _health(process) == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()


def _health(process: subprocess.Popen[bytes]) -> int:
    """The status of its health; the first port that it listens on is a trial and closed again."""
    while True:
        with contextlib.suppress(httpx.ConnectError):
            return httpx.get(f"http://127.0.0.1:{_port_of(process)}/health", timeout=60).status_code


def _port_of(process: subprocess.Popen[bytes]) -> int:
    """The port on which a process listens, once it does: it cannot say so."""
    while True:
        assert process.poll() is None
        for line in Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            inode = f"socket:[{fields[9]}]"
            if fields[3] == "0A" and inode in _descriptors(process.pid):
                return int(fields[1].partition(":")[2], 16)


def _descriptors(pid: int) -> set[str]:
    found: set[str] = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(cast("str", os.readlink(path)))
    return found

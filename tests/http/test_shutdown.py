"""The end of a server: signals, draining, and what it refuses to start on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from tensorfold.errors import ConfigError
from tensorfold.http import ServerSettings, run_server
from tensorfold_auth_keys.source import KeySource

Rig = Callable[..., Any]

PROGRAM = textwrap.dedent(
    """
    import sys, threading
    from tensorfold.http import ServerSettings, create_app, run_server
    from tensorfold.ir import Finished, Queued, Stopped, TextDelta, Timings, Usage
    from tensorfold.testing.dialects import MODEL
    from tensorfold.testing.scripted_engine import ScriptedEngine
    from tensorfold_auth_keys.source import KeySource
    from tensorfold_dialect_openai import openai_dialect
    from pathlib import Path

    def script(request):
        yield Queued(1)
        piece = "x" * (500_000 if request.model == "flood" else 1)
        for number in range(request.limits.max_tokens or 100000):
            yield TextDelta(0, piece)
            yield 0.01
        yield Stopped(0, "length")
        yield Finished(Usage(1, 1), Timings(), ("00",))

    keys = KeySource(file=Path(sys.argv[2])) if len(sys.argv) > 2 else KeySource()
    app = create_app(engine=ScriptedEngine(MODEL, script), model=MODEL, dialects=[openai_dialect()], auth=[keys])
    settings = ServerSettings(port=0, drain_seconds=float(sys.argv[1]))
    run_server(app, settings, on_ready=lambda url: print(url, flush=True))
    left = [each.name for each in threading.enumerate() if each is not threading.main_thread()]
    print("ended", left, flush=True)
    """
)


@pytest.fixture
def start() -> Iterator[Callable[..., tuple[subprocess.Popen[str], httpx.Client]]]:
    """Starts a server of its own process, and a client of it."""
    processes: list[subprocess.Popen[str]] = []
    clients: list[httpx.Client] = []

    def start_one(*arguments: str) -> tuple[subprocess.Popen[str], httpx.Client]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        processes.append(process)
        assert process.stdout is not None
        client = httpx.Client(base_url=process.stdout.readline().strip(), timeout=20)
        clients.append(client)
        return process, client

    yield start_one
    for client in clients:
        client.close()
    for process in processes:
        process.kill()
        process.communicate()


CHAT = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_with_code_0_and_no_thread_left(start: Any, number: int) -> None:
    process, client = start("5")
    assert client.get("/health").status_code == 200
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out.splitlines()[-1]) == (0, "ended []")
    assert "Traceback" not in err


def test_a_signal_lets_running_replies_end(start: Any) -> None:
    process, client = start("20")
    with client.stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True, "max_tokens": 40}) as answer:
        chunks = answer.iter_text()
        text = next(chunks)
        process.send_signal(signal.SIGTERM)
        text += "".join(chunks)
    assert '"finish_reason":"length"' in text
    assert text.endswith("data: [DONE]\n\n")
    process.communicate(timeout=20)
    assert process.returncode == 0


@pytest.mark.parametrize("signals", [1, 2])
def test_an_open_stream_ends_with_an_abort_and_the_server_with_code_0(start: Any, signals: int) -> None:
    """The drain's end and a second signal both abort what still runs."""
    process, client = start("0.2" if signals == 1 else "60")
    with client.stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True}) as answer:
        chunks = answer.iter_text()
        text = next(chunks)
        for _ in range(signals):
            process.send_signal(signal.SIGTERM)
            text += next(chunks)
        text += "".join(chunks)
    assert '"finish_reason":"abort"' in text
    assert text.endswith("data: [DONE]\n\n")
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out.splitlines()[-1]) == (0, "ended []")
    assert "Traceback" not in err


def test_a_stalled_client_does_not_keep_the_server_up(start: Any) -> None:
    process, client = start("0")
    with socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
        stalled.connect((client.base_url.host, client.base_url.port))
        body = b'{"messages":[{"role":"user","content":"x"}],"stream":true,"model":"flood"}'
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        stalled.sendall(head + body)
        stalled.recv(100)
        time.sleep(0.5)  # more is written than all buffers hold
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=20)
    assert (process.returncode, out.splitlines()[-1]) == (0, "ended []")


@pytest.mark.requirement("T-023")
def test_sighup_reads_the_key_file_again(start: Any, tmp_path: Path) -> None:
    """SIGHUP reloads the keys at once, and the server goes on."""
    file = tmp_path / "keys"
    file.touch(0o600)
    file.write_text("old")
    process, client = start("0", str(file))
    assert client.get("/v1/models", headers={"x-api-key": "old"}).status_code == 200
    status = file.stat()
    file.write_text("new")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    process.send_signal(signal.SIGHUP)
    give_up = time.monotonic() + 20
    while client.get("/v1/models", headers={"x-api-key": "new"}).status_code != 200 and time.monotonic() < give_up:
        time.sleep(0.01)
    assert client.get("/v1/models", headers={"x-api-key": "new"}).status_code == 200
    assert client.get("/v1/models", headers={"x-api-key": "old"}).status_code == 401
    assert process.poll() is None


def test_a_draining_server_refuses_new_requests_on_kept_connections(rig: Rig, chat: dict[str, Any]) -> None:
    made = rig()
    with made.serve() as client:
        made.app.drain()
        answer = client.post("/v1/chat/completions", json=chat)
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "shutting_down"


def test_no_task_or_thread_is_left_after_the_end(rig: Rig, chat: dict[str, Any]) -> None:
    before = set(threading.enumerate())
    made = rig()
    with made.serve() as client:
        assert client.post("/v1/completions", json={"prompt": "word " * 100_000}).status_code == 200
    assert set(threading.enumerate()) == before


def test_a_taken_port_is_told_with_the_way_out(rig: Rig) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port}: another program listens there.*--port"):
            run_server(rig().app, ServerSettings(port=port), on_ready=print)


@pytest.mark.parametrize(("host", "port"), [("no-such-host.invalid", 0), ("127.0.0.1", 70_000), ("203.0.113.1", 0)])
def test_an_address_that_is_not_ours_is_told(rig: Rig, host: str, port: int) -> None:
    with pytest.raises(ConfigError, match="cannot listen on"):
        run_server(rig().app, ServerSettings(host=host, port=port), on_ready=print)


@pytest.mark.requirement("T-001")
def test_the_default_address_is_port_8080_on_loopback() -> None:
    """Without flags the server listens on 127.0.0.1 port 8080."""
    settings = ServerSettings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8080)


@pytest.mark.requirement("T-020")
@pytest.mark.parametrize(
    ("host", "keys", "warned"),
    [("0.0.0.0", [], True), ("0.0.0.0", ["k"], False), ("127.0.0.1", [], False), ("localhost", [], False)],
)
def test_an_open_server_on_a_foreign_address_is_warned_of(rig: Rig, host: str, keys: list[str], warned: bool) -> None:
    """With no keys configured, a bind to a non-loopback address prints a warning."""
    with capture_logs() as lines, rig(auth=[KeySource(flags=keys)]).serve(host=host) as client:
        assert client.get("/health").status_code == 200
    assert any(line["log_level"] == "warning" and "--api-key-file" in line["event"] for line in lines) is warned

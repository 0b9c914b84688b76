"""How a server starts, what it refuses to start with, and how it ends."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

Start = Callable[..., Any]


def test_a_start_ends_with_a_block_that_says_what_is_served_and_to_whom(server: Any) -> None:
    assert server.url.startswith("http://127.0.0.1:")
    server.wait_for(r"^ +auth ")
    block = dict(
        line.split(None, 1) for line in server.lines if line.startswith("  ") and len(line.split(None, 1)) == 2
    )
    assert block["model"] == "SmolLM2-135M-Instruct.Q4_1, an-alias (135M parameters)"
    assert block["family"].startswith("llama: ")
    assert block["window"].startswith("1024 tokens (as asked; the checkpoint's is 8192), 8 replies at once")
    assert "openai" in block["dialects"].split(", ")
    assert block["auth"].startswith("no keys")
    assert {"backend", "memory", "from", "address"} <= set(block)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/no/such/model"], "there is no folder or file /no/such/model"),
        (["--dialect", "opnai"], "no plugin dialects/opnai; there are"),
        (["--backend", "abacus"], "no plugin backends/abacus"),
        (["--context", "100000"], "--context is 100000, and the checkpoint's window is 8192 tokens"),
        (["--scheduler", "fair"], "--scheduler is 'fair', and the policies offered are default"),
        (["--device", "abacus"], "abacus"),
        (["--host", "no.such.host.invalid"], "cannot listen on no.such.host.invalid"),
        (["--temperature", "hot"], "--temperature is 'hot', and must be a number"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(start: Start, arguments: list[str], message: str) -> None:
    server = start(*arguments)
    assert server.wait() == 2
    assert server.lines[-1].startswith("tensorfold: ")
    assert message in server.lines[-1]
    assert not any("Traceback" in line for line in server.lines)
    assert server.output == ""


def test_a_checkpoint_that_no_family_claims_is_refused_with_what_was_looked_at(start: Start, tmp_path: Path) -> None:
    config = {"model_type": "abacus", "architectures": ["AbacusForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    server = start(str(tmp_path))
    assert server.wait() == 2
    for part in ("abacus", "AbacusForCausalLM", "llama"):
        assert part in server.lines[-1]


def test_a_taken_port_is_told_before_the_model_is_read(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = start("--port", str(taken.getsockname()[1]))
        assert server.wait() == 2
    assert "another program listens there" in server.lines[-1]
    assert not any("reading weights" in line for line in server.lines)


@pytest.mark.requirement("T-007")
def test_a_key_file_that_others_can_read_is_refused(start: Start, tmp_path: Path) -> None:
    """The start is refused when other users can read the key file."""
    file = tmp_path / "keys"
    file.write_text("a-key\n")
    file.chmod(0o644)
    server = start("--api-key-file", str(file))
    assert server.wait() == 2
    assert str(file) in server.lines[-1]


@pytest.mark.requirement("T-018", "T-020", "T-023")
def test_keys_guard_a_server_that_reads_its_settings_from_a_file_and_rotates_them_on_a_signal(
    start: Start, tmp_path: Path
) -> None:
    """A server with keys answers those who have one; without a key `/health` tells the status alone; SIGHUP rotates."""
    keys = tmp_path / "keys"
    keys.touch(mode=0o600)
    keys.write_text("first: one-key\n")
    (tmp_path / "tensorfold.toml").write_text(
        'host = "0.0.0.0"\ncontext = 256\nparallel = 1\nserved_name = "mine"\n[auth.keys]\napi_key_file = "keys"\n'
    )
    server = start(folder=tmp_path)
    assert server.health() == {"status": "ok"}
    assert server.health("one-key")["context_length"] == 256
    assert [model.id for model in server.client("one-key").models.list()] == ["mine"]
    with pytest.raises(openai.AuthenticationError):
        server.client("another").models.list()
    fresh = tmp_path / "fresh"
    fresh.touch(mode=0o600)
    fresh.write_text("second: two-key\n")
    os.replace(fresh, keys)
    server.signal(signal.SIGHUP)
    server.wait_for("reload")
    assert [model.id for model in server.client("two-key").models.list()] == ["mine"]
    with pytest.raises(openai.AuthenticationError):
        server.client("one-key").models.list()
    assert not any("anyone who reaches this address" in line for line in server.lines)
    assert not any("one-key" in line or "two-key" in line for line in server.lines)


@pytest.mark.requirement("T-020")
def test_a_server_ends_in_order_and_warns_when_everybody_may_use_it(start: Start) -> None:
    """Without keys on another than a loopback address the start warns; SIGTERM lets a reply end, and the code is 0."""
    server = start("--host", "0.0.0.0", "--context", "256", "--parallel", "1", "--grace", "60")
    body = {"prompt": "Count:", "max_tokens": 12, "ignore_eos": True, "stream": True}
    began = threading.Event()
    lines: list[str] = []

    def read() -> None:
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as answer:
            for line in answer.iter_lines():
                lines.append(line)
                if line.startswith("data: "):
                    began.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert began.wait(60)
    server.signal(signal.SIGTERM)
    reader.join(60)
    assert server.wait() == 0
    assert lines[-2:] == ["data: [DONE]", ""] or lines[-1] == "data: [DONE]"
    assert any("anyone who reaches this address" in line for line in server.lines)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")


def test_a_second_signal_ends_a_server_that_waits_for_a_reply(start: Start) -> None:
    server = start("--context", "1024", "--parallel", "1", "--grace", "600")
    body = {"prompt": "Count:", "max_tokens": 1000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as answer:
        next(answer.iter_lines())
        server.signal(signal.SIGINT)
        server.wait_for("shutting down")
        server.signal(signal.SIGINT)
        assert server.wait() == 0


def test_a_signal_shows_what_every_thread_is_doing_and_the_server_goes_on(start: Start) -> None:
    """SIGUSR1 writes stacks to stderr."""
    server = start("--context", "256", "--parallel", "1")
    assert server.health()["status"] == "ok"
    server.signal(signal.SIGUSR1)
    server.wait_for(r"loop\.py.* in _take")
    assert server.health()["status"] == "ok"


def test_a_server_on_a_socket_file_with_a_log_of_requests_and_limits(start: Start) -> None:
    """Served over its file, each request written to another, and a key's second request refused while its first runs."""
    with tempfile.TemporaryDirectory() as folder:
        path, logs = Path(folder) / "api.sock", Path(folder) / "logs"
        limits = ("--key-requests-per-minute", "2")
        server = start("--unix-socket", str(path), "--log-requests", str(logs), "--context", "512", *limits)
        assert server.wait_for(r"address +(unix:\S+)").group(1) == f"unix:{path}"
        asked = {"prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}
        with httpx.Client(
            transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost", timeout=60
        ) as client:
            answers = [client.post("/v1/completions", json=asked) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert int(answers[2].headers["retry-after"]) <= 30
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert not path.exists()
        written = [json.loads(file.read_text()) for file in sorted(logs.glob("*.json"))]
    assert sorted(each["answer"]["status"] for each in written) == [200, 200, 429]
    told = {sha for each in written for sha in each["answer"]["token_sha"]}
    assert told == {answers[0].json()["tensorfold"]["token_sha"]}


@pytest.mark.requirement("T-290")
def test_a_restarted_server_goes_on_from_the_prompts_that_it_kept_on_disk(start: Start, tmp_path: Path) -> None:
    """The same reply, and most of its prompt comes from the cache of the server before; only its owner may read that."""
    folder = tmp_path / "kept"
    arguments = ("--context", "1024", "--parallel", "1", "--spill-gib", "1", "--spill-dir", str(folder))
    words = "The sea is wide, the hill is red, and the old road goes home under the trees. "
    answers: list[dict[str, Any]] = []
    for _ in range(2):
        server = start(*arguments, "--prefill-chunk", "64")
        body = {"prompt": words * 12, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        answers.append(httpx.post(f"{server.url}/v1/completions", json=body, timeout=120).json())
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    fresh, resumed = answers
    assert resumed["tensorfold"]["token_sha"] == fresh["tensorfold"]["token_sha"]
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
    assert cached[0] == 0 and fresh["usage"]["prompt_tokens"] - 64 <= cached[1] < fresh["usage"]["prompt_tokens"]
    assert {file.stat().st_mode & 0o077 for file in folder.rglob("*")} == {0}


def test_a_crowd_that_the_queue_has_room_for_is_served(start: Start) -> None:
    """However many come at one moment, and whether their replies are bound or not."""
    server = start("--context", "256", "--queue", "500")

    async def crowd() -> list[int]:
        limits = httpx.Limits(max_connections=130)
        async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as client:

            async def ask(number: int) -> int:
                body: dict[str, object] = {"prompt": f"{number} " * 20, "max_tokens": 1}
                if number % 3 == 0 and importlib.util.find_spec("xgrammar"):
                    body["guided_choice"] = ["a", "b"]
                return (await client.post("/v1/completions", json=body)).status_code

            return await asyncio.gather(*map(ask, range(120)))

    assert set(asyncio.run(crowd())) == {200}


@pytest.mark.requirement("T-095", "T-094")
def test_the_salt_is_in_the_keys_of_requests_without_a_seed_alone(start: Start) -> None:
    """`TENSORFOLD_SEED_SALT`: the same prompt is sampled otherwise, and with a seed it is sampled alike."""
    told: list[list[str]] = []
    for salt in ("0", "1"):
        server = start("--context", "256", "--parallel", "1", environment={"TENSORFOLD_SEED_SALT": salt})
        with httpx.Client(base_url=server.url, timeout=60) as client:
            body = {"prompt": "Once", "max_tokens": 12, "temperature": 1.0}
            bodies: list[dict[str, object]] = [body, body, {**body, "seed": 5}]
            answers = [client.post("/v1/completions", json=each).json() for each in bodies]
        told.append([answer["tensorfold"]["token_sha"] for answer in answers])
    (plain, again, seeded), (salted, salted_again, seeded_too) = told
    assert plain == again
    assert salted == salted_again
    assert plain != salted
    assert seeded == seeded_too

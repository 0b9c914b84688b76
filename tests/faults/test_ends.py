"""How a server ends: in order with a signal, without one at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tensorfold.engine.spill_file import drop_unfinished
from tensorfold.testing.waiting import until

from .rig import ASKS, REPLY, Ask, text_of

Start = Callable[..., "Program"]

PROGRAM = textwrap.dedent(
    """
    import dataclasses, sys, threading
    from pathlib import Path
    from tensorfold.engine.settings import EngineSettings
    from tensorfold.http import ServerSettings, create_app, run_server
    from tensorfold.observe import configure_logs
    from tensorfold.testing.dialects import MODEL
    from tensorfold.testing.scripted import Script, Stall, slow
    from tensorfold.testing.toy_engine import toy_engine
    from tensorfold_dialect_anthropic import anthropic_dialect
    from tensorfold_dialect_ollama import ollama_dialect
    from tensorfold_dialect_openai import openai_dialect

    configure_logs("json", "info")
    grace, folder = float(sys.argv[1]), Path(sys.argv[2])
    reply, paced = b"a reply of some length", dict.fromkeys(range(3000), slow(0.01))
    scripts = []
    for asked in sys.stdin.readline().split("|"):
        prompt, how = asked.strip().rsplit(" ", 1)
        prompt = prompt.encode().decode("unicode_escape").encode()
        if how == "short":
            scripts.append(Script(tuple(prompt), tuple(reply), at=paced))
        elif how == "stalled":
            scripts.append(Script(tuple(prompt), tuple(reply), at={4: Stall()}))
        else:
            scripts.append(Script(tuple(prompt), tuple(b"on and on " * 300), at=paced))
    spilling = EngineSettings(spill_folder=folder, spill_bytes=1 << 20)
    engine = toy_engine(scripts, lanes=8, positions=None if len(scripts) > 1 else 1280, settings=spilling)
    engine.start()
    app = create_app(
        engine=engine,
        model=dataclasses.replace(MODEL, window=engine.window, vocabulary=257),
        dialects=[anthropic_dialect(), ollama_dialect(), openai_dialect()],
    )

    run_server(app, ServerSettings(port=0, drain_seconds=grace), on_ready=lambda url: print(url, flush=True))
    left = [each.name for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
    print("ended", left, flush=True)
    """
)


class Program:
    """A server of its own process."""

    def __init__(self, prompts: str, grace: float, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(grace), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(prompts + "\n")
        self.process.stdin.flush()
        self.client = httpx.Client(base_url=self.process.stdout.readline().strip(), timeout=60)

    def close(self) -> None:
        """End it, whatever state it is in."""
        self.client.close()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers that end with the test."""
    programs: list[Program] = []

    def start(prompts: str, grace: float = 1.0) -> Program:
        programs.append(Program(prompts, grace, tmp_path / "kept"))
        return programs[-1]

    yield start
    for program in programs:
        program.close()


class Stream(threading.Thread):
    """One stream, read to its end."""

    def __init__(self, client: httpx.Client, ask: Ask, prompt: str) -> None:
        super().__init__()
        self._client, self._ask, self._prompt = client, ask, prompt
        self.begun = threading.Event()
        self.answer: httpx.Response | None = None
        self.text = ""
        self.start()

    def run(self) -> None:
        body = {**self._ask.body(self._prompt), "stream": True, **LONG.get(self._ask.path, {"max_tokens": 3000})}
        with self._client.stream("POST", self._ask.path, json=body) as answer:
            for piece in answer.iter_text():
                self.text += piece
                if text_of_stream(answer, self.text):
                    self.begun.set()
            self.answer = answer


LONG: dict[str, dict[str, Any]] = {
    "/v1/responses": {"max_output_tokens": 3000},
    "/api/chat": {"options": {"num_predict": 3000}},
    "/api/generate": {"options": {"num_predict": 3000}},
}


def text_of_stream(answer: httpx.Response, text: str) -> str:
    """The text that a stream carries so far; its last line may be cut."""
    whole = text[: text.rfind("\n") + 1]
    return text_of(httpx.Response(200, headers={"content-type": answer.headers["content-type"]}, text=whole))


def has_ended(path: str, text: str) -> bool:
    """Whether a stream has its dialect's own end: that of a reply, of an abort or of an error."""
    match path:
        case "/v1/chat/completions" | "/v1/completions":
            return text.endswith("data: [DONE]\n\n")
        case "/v1/responses":
            last = json.loads(text.strip().splitlines()[-1].removeprefix("data: "))
            return last["type"] in ("response.completed", "response.incomplete", "response.failed", "error")
        case "/v1/messages":
            last = json.loads(text.strip().splitlines()[-1].removeprefix("data: "))
            return last["type"] in ("message_stop", "error")
        case _:
            last = json.loads(text.strip().splitlines()[-1])
            return bool(last.get("done") or last.get("error"))


def test_a_signal_ends_eight_streams_each_in_its_dialects_words(start: Start) -> None:
    """Four that finish in time are whole, four that do not end with what their API says of it; the exit code is 0."""
    asked: list[tuple[Ask, str, str]] = []
    for number, name in enumerate(("chat", "messages", "responses", "ollama chat") * 2):
        how = "endless" if number < 4 else "short"
        asked.append((ASKS[name], f"{how} {number}", how))
    prompts = "|".join(
        bytes(ask.ids(prompt)).decode().encode("unicode_escape").decode() + f" {how}" for ask, prompt, how in asked
    )
    program = start(prompts)
    streams = [Stream(program.client, ask, prompt) for ask, prompt, _ in asked]
    for stream in streams:
        assert stream.begun.wait(60)
    program.process.send_signal(signal.SIGTERM)
    for stream, (ask, _, how) in zip(streams, asked, strict=True):
        stream.join(60)
        assert stream.answer is not None, ask.path
        assert has_ended(ask.path, stream.text), stream.text[-300:]
        text = text_of_stream(stream.answer, stream.text)
        expected = REPLY.decode() if how == "short" else "on and on " * 300
        assert text
        assert expected.startswith(text)
        assert how == "short" or len(text) < len(expected)
    assert program.process.wait(30) == 0
    assert program.process.stdout is not None
    assert program.process.stdout.read() == "ended []\n"


def test_nothing_that_is_kept_on_disk_is_lost_to_a_kill(start: Start, tmp_path: Path) -> None:
    """Killed in the middle of a step: the next server begins with every prompt that was written, and with no half ones."""
    program = start("a prompt that stalls stalled")
    body = {"max_tokens": 6, "ignore_eos": True, "temperature": 0.8, "seed": 1}
    prompts = [f"{number} " * 300 for number in range(6)]
    first = [program.client.post("/v1/completions", json={**body, "prompt": prompt}).json() for prompt in prompts]
    # Memory for two prompts does not hold six, and what it gives up is written beside the replies.
    until(lambda: any((tmp_path / "kept").rglob("*.prefix")))
    written = sorted((tmp_path / "kept").rglob("*.prefix"))
    stalled = threading.Thread(target=_abandoned, args=(program.client, "a prompt that stalls"))
    stalled.start()
    program.process.kill()
    stalled.join(60)
    half = written[0].with_name("0123.4194999.tmp")
    half.write_bytes(b"tensorfold prefix 1\n")
    again = start("a prompt that stalls stalled")
    assert set(written) <= set((tmp_path / "kept").rglob("*.prefix"))
    assert not half.exists()
    second = [again.client.post("/v1/completions", json={**body, "prompt": prompt}).json() for prompt in prompts]
    assert [each["tensorfold"]["token_sha"] for each in second] == [each["tensorfold"]["token_sha"] for each in first]
    cached = [each["usage"]["prompt_tokens_details"]["cached_tokens"] for each in second]
    assert any(tokens > 200 for tokens in cached)


def _abandoned(client: httpx.Client, prompt: str) -> None:
    with pytest.raises(httpx.HTTPError):
        client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 30})


def test_only_files_of_processes_that_are_gone_are_dropped(tmp_path: Path) -> None:
    """Another server may be writing into the same folder at this moment."""
    running = tmp_path / f"aa.{os.getppid()}.tmp"
    gone = [tmp_path / "bb.4194999.tmp", tmp_path / f"cc.{os.getpid()}.tmp", tmp_path / "dd.tmp"]
    kept = tmp_path / "ee.prefix"
    for path in (running, *gone, kept):
        path.touch()
    drop_unfinished(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([running, kept])

"""Real servers, as `tensorfold serve` starts them, on the model that is installed with the tests."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx
import openai
import pytest

Start = Callable[..., "Server"]

EXTRA = shlex.split(os.environ.get("TENSORFOLD_TEST_SERVE", ""))
"""Arguments for every server, so that the same tests run on another backend: `--backend NAME`."""

ALIASES = ("--alias", "an-alias", "--alias", "an-alias", "--alias", "SmolLM2-135M-Instruct.Q4_1")
"""One of them twice, and the model's own name: each is listed once."""

START_SECONDS = 120.0
END_SECONDS = 30.0


class Server:
    """A running `tensorfold serve`, and what it says."""

    def __init__(
        self, *arguments: str, environment: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tensorfold", "serve", "--port", "0", *EXTRA, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
            cwd=folder,
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, pattern: str, seconds: float = START_SECONDS) -> re.Match[str]:
        """The first line that matches, once it is said."""
        found: list[re.Match[str]] = []

        def said() -> bool:
            found[:] = [match for line in self.lines if (match := re.search(pattern, line))]
            return bool(found) or not self._reader.is_alive()

        with self._changed:
            self._changed.wait_for(said, seconds)
        assert found, f"the server never said {pattern!r}:\n" + "\n".join(self.lines)
        return found[0]

    @property
    def url(self) -> str:
        """Its address, once it is ready."""
        return self.wait_for(r"address +(http://\S+)/v1").group(1)

    def client(self, key: str = "none", *, strict: bool = True) -> openai.OpenAI:
        """The real SDK; when strict, it refuses answers that are not exactly as its types say."""
        return openai.OpenAI(
            base_url=f"{self.url}/v1",
            api_key=key,
            max_retries=0,
            timeout=120,
            _strict_response_validation=strict,
        )

    def health(self, key: str | None = None) -> dict[str, object]:
        """What `/health` says."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        answer: dict[str, object] = httpx.get(f"{self.url}/health", headers=headers).json()
        return answer

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self, seconds: float = END_SECONDS) -> int:
        """Its exit code, once it has ended."""
        code = self._process.wait(seconds)
        self._reader.join(seconds)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.output = self._process.stdout.read()
        self._process.stdout.close()
        self._process.stderr.close()
        return code

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self._process.returncode is None and self._process.poll() is None:
            self._process.terminate()
            try:
                self.wait()
            except subprocess.TimeoutExpired:
                self._process.kill()
                self.wait()
        elif self._process.stdout is not None and not self._process.stdout.closed:
            self.wait()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts servers that end with the test."""
    servers: list[Server] = []

    def start(*arguments: str, environment: Mapping[str, str] | None = None, folder: Path | None = None) -> Server:
        servers.append(Server(*arguments, environment=environment, folder=folder))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One server for all tests that leave it as it was."""
    server = Server(*ALIASES, "--context", "1024", "--parallel", "8")
    assert server.url
    yield server
    server.close()


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[openai.OpenAI]:
    """The SDK for it."""
    with server.client() as client:
        yield client


@pytest.fixture(scope="session")
def lax(server: Server) -> Iterator[openai.OpenAI]:
    """The SDK as its users have it. Streams of raw completions need it: OpenAI's own type has no word for a choice that
    goes on, which its own server sends as null.
    """
    with server.client(strict=False) as client:
        yield client

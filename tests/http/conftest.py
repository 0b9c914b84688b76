"""An application over a scripted engine, and the server that runs it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Generator, Iterator
from typing import Any

import httpx
import pytest

from tensorfold.http import Application, HttpSettings, ServerSettings, create_app
from tensorfold.ir import Request
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scripted_engine import ScriptedEngine, ScriptItem
from tensorfold.testing.serving import served
from tensorfold_dialect_openai import openai_dialect

Script = Callable[[Request], Iterator[ScriptItem]]


class Rig:
    """One application under test."""

    def __init__(self, script: Script, settings: HttpSettings, more: dict[str, Any]) -> None:
        self.engine = ScriptedEngine(MODEL, script)
        self.app: Application = create_app(
            engine=self.engine, model=MODEL, dialects=[openai_dialect()], settings=settings, **more
        )

    @contextlib.contextmanager
    def serve(self, **settings: Any) -> Generator[httpx.Client]:
        """Serve, and give a client of the server."""
        options = ServerSettings(**{"port": 0, "drain_seconds": 0.0, **settings})
        with served(self.app, options) as url, httpx.Client(base_url=url, timeout=20) as client:
            yield client


def hello(request: Request) -> Iterator[ScriptItem]:
    """A reply of two pieces."""
    yield from reply_events(["Hel", "lo"], request.choices)


@pytest.fixture
def rig() -> Callable[..., Rig]:
    """Makes an application: `rig(script, settings, auth=[...])`."""

    def make(script: Script = hello, settings: HttpSettings | None = None, **more: Any) -> Rig:
        return Rig(script, settings or HttpSettings(), more)

    return make


CHAT = {"messages": [{"role": "user", "content": "hi"}]}
"""A small body."""


@pytest.fixture
def chat() -> dict[str, Any]:
    """A small body for `/v1/chat/completions`."""
    return dict(CHAT)


@pytest.fixture
def connect() -> Iterator[Callable[..., socket.socket]]:
    """Opens raw sockets to a client's server; they are closed at the end."""
    opened: list[socket.socket] = []

    def open_one(client: httpx.Client, receive_buffer: int | None = None) -> socket.socket:
        connection = socket.socket()
        opened.append(connection)
        connection.settimeout(20)
        if receive_buffer is not None:  # before connecting, or the window is scaled for another
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.connect((client.base_url.host, client.base_url.port or 80))
        return connection

    yield open_one
    for connection in opened:
        connection.close()

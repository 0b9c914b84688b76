"""A server for one conversation: on a free loopback port, with a key that nobody else knows, in a thread."""

from __future__ import annotations

import dataclasses
import hmac
import secrets
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

from tensorfold.cli.early import Launch
from tensorfold.config import ServeConfig
from tensorfold.contracts.auth import Credentials, Principal

if TYPE_CHECKING:
    from tensorfold.http import Application

__all__ = ["Served", "own_server"]


@dataclass(frozen=True, slots=True)
class Served:
    """A server to talk to."""

    url: str
    key: str | None


class _OneKey:
    """Recognizes the conversation's own key; a loopback port is open to everybody on the machine."""

    name = "chat"
    guards = True
    description = "one key"

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def identify(self, credentials: Credentials) -> Principal | None:
        matches = [hmac.compare_digest(offered.encode(), self._key) for offered in credentials.offered]
        return Principal("chat") if any(matches) else None

    def refresh(self) -> None:
        """The key never changes."""

    def reload(self) -> None:
        """The key never changes."""


@contextmanager
def own_server(launch: Launch, config: ServeConfig, model: str | None) -> Generator[Served]:
    """Load a model and serve it until the block is left.

    Raises:
        TensorfoldError: what was asked for cannot be.
    """
    # Imported here, since `tensorfold --help` must not pay for them.
    from tensorfold.cli.application import web_application
    from tensorfold.cli.assemble import assemble
    from tensorfold.cli.startup import StartupDisplay
    from tensorfold.observe import configure_logs

    configure_logs("console", "error")
    given = config if model is None else dataclasses.replace(config, model=model)
    with StartupDisplay() as display:
        assembled = assemble(given, launch.plugins, display)
    key = secrets.token_urlsafe(24)
    application = web_application(given, assembled, [_OneKey(key)])
    assembled.engine.start()
    with _running(application) as url:
        yield Served(url, key)


@contextmanager
def _running(application: Application) -> Generator[str]:
    """The server in a thread; its address once it listens."""
    from tensorfold.http import ServerSettings, run_server

    news: SimpleQueue[str | BaseException] = SimpleQueue()

    def run() -> None:
        try:
            run_server(application, ServerSettings(host="127.0.0.1", port=0, drain_seconds=0.0), on_ready=news.put)
        except BaseException as error:  # noqa: BLE001 (told to the thread that waits)
            news.put(error)

    thread = threading.Thread(target=run, name="tensorfold-chat-server")
    thread.start()
    try:
        first = news.get()
        if isinstance(first, BaseException):
            raise first
        yield first
    finally:
        application.stop()
        thread.join()

"""A real server in a thread: a socket, uvicorn, the whole HTTP front. For tests with real clients."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator

from tensorfold.http.app import Application
from tensorfold.http.server import run_server
from tensorfold.http.settings import ServerSettings

__all__ = ["served"]

_PATIENCE = 30.0
"""Seconds that a start or an end may take."""


@contextlib.contextmanager
def served(app: Application, settings: ServerSettings | None = None) -> Generator[str]:
    """Serve on a free port; gives the URL. The server has ended, threads and all, when the block is left."""
    ready = threading.Event()
    urls: list[str] = []
    failures: list[BaseException] = []

    def on_ready(url: str) -> None:
        urls.append(url)
        ready.set()

    def run() -> None:
        try:
            run_server(app, settings or ServerSettings(port=0, drain_seconds=0.0), on_ready=on_ready)
        except BaseException as failure:  # noqa: BLE001 - handed to the thread that waits
            failures.append(failure)
            ready.set()

    thread = threading.Thread(target=run, name="served")
    thread.start()
    try:
        if not ready.wait(_PATIENCE):
            raise TimeoutError(f"the server was not ready after {_PATIENCE:g} s")
        if failures:
            raise failures[0]
        yield urls[0]
    finally:
        app.stop()
        thread.join(_PATIENCE)
        if thread.is_alive():
            raise TimeoutError(f"the server had not ended after {_PATIENCE:g} s")

"""A tiny model on a server that speaks the Hub's routes, and what pulls from there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tensorfold.testing.tiny import write_tiny

from .hub import Handler, Repository
from .puller import Puller


@pytest.fixture
def serve() -> Iterator[Callable[[Repository], str]]:
    """Serves repositories; gives the address."""
    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(repository: Repository) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Hub", (Handler,), {"repository": repository}))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A tiny model, and files that are not read."""
    folder = write_tiny(tmp_path / "made")
    files = {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
    return Repository({**files, "README.md": b"words", "pytorch_model.bin": b"pickle"})


@pytest.fixture
def pull(serve: Callable[[Repository], str], repository: Repository, tmp_path: Path) -> Puller:
    """Pulls it into a cache of its own."""
    return Puller(serve(repository), tmp_path / "hub")

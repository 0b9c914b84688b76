"""A server that speaks as much of the Hub's routes as a download asks, and cuts connections."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

COMMIT = "c" * 40


@dataclass
class Repository:
    """What the server holds and how it behaves."""

    files: dict[str, bytes]
    commit: str = COMMIT
    cut: int | None = None
    """Bytes of content after which each connection for a large file is cut."""
    ranges: bool = True
    refuse: list[int] = field(default_factory=list[int])
    """Statuses with which the next requests for files are refused."""
    dies: bool = False
    """Whether everything is refused once a connection was cut."""
    elsewhere: str | None = None
    """Large files are redirected there."""
    tell: Callable[[str, dict[str, Any]], None] = lambda name, sibling: None
    """Changes what the listing says of a file."""
    asked: list[tuple[str, str | None, str | None]] = field(default_factory=list[tuple[str, str | None, str | None]])
    """Path, Range and Authorization of every request."""


def git_digest(content: bytes) -> str:
    """The name that git has for it, by which the Hub lists small files."""
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def large(name: str) -> bool:
    """Whether the Hub lists the file by its SHA-256."""
    return name.endswith((".safetensors", ".gguf"))


class Handler(BaseHTTPRequestHandler):
    """As much of the Hub as a download asks."""

    repository: Repository

    def do_GET(self) -> None:
        repository = self.repository
        path = self.path.partition("?")[0]
        repository.asked.append((path, self.headers["Range"], self.headers["Authorization"]))
        if path == "/api/models/org/tiny/revision/main":
            self._answer(200, json.dumps(self._listing()).encode())
        elif path.startswith((f"/org/tiny/resolve/{repository.commit}/", "/store/")):
            name = path.rpartition("/")[2]
            if repository.refuse:
                self._answer(repository.refuse.pop(0), b"no")
            elif repository.elsewhere is not None and large(name):
                self.send_response(302)
                self.send_header("Location", f"{repository.elsewhere}/store/{name}")
                self.end_headers()
            else:
                self._file(name)
        else:
            self._answer(404, b'{"error": "Repository not found"}')

    def _listing(self) -> dict[str, Any]:
        siblings: list[dict[str, Any]] = []
        for name, content in self.repository.files.items():
            sibling: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": git_digest(content)}
            if large(name):
                sibling["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 1}
            self.repository.tell(name, sibling)
            siblings.append(sibling)
        return {"id": "org/tiny", "sha": self.repository.commit, "siblings": siblings}

    def _file(self, name: str) -> None:
        content, start = self.repository.files[name], 0
        if (asked := self.headers["Range"]) and self.repository.ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = self.repository.cut
        if cut is not None and large(name):
            self.wfile.write(content[start : start + cut])
            self.close_connection = True
            if self.repository.dies:
                self.repository.refuse.extend([503] * 50)
        else:
            self.wfile.write(content[start:])

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


def weights_asked(repository: Repository) -> list[str | None]:
    """The Range of every request for the weights."""
    return [asked for path, asked, _ in repository.asked if path.endswith("model.safetensors")]

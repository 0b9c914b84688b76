"""One request to an ASGI application, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["Answered", "AsgiApplication", "ask"]

AsgiApplication: TypeAlias = Callable[
    [dict[str, Any], Callable[[], Awaitable[MutableMapping[str, Any]]], Callable[[Any], Awaitable[None]]],
    Awaitable[None],
]


@dataclass(slots=True)
class Answered:
    """What came back."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Names in lower case."""
    body: bytes = b""


def ask(
    app: AsgiApplication, method: str, path: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> Answered:
    """Send one request and wait for the whole answer. The client stays until then."""
    return asyncio.run(_ask(app, method, path, body, dict(headers or {})))


async def _ask(app: AsgiApplication, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answered:
    answered = Answered()
    over = asyncio.Event()
    pieces = [body]

    async def receive() -> MutableMapping[str, Any]:
        if pieces:
            return {"type": "http.request", "body": pieces.pop(), "more_body": False}
        await over.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answered.status = message["status"]
            answered.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            answered.body += message.get("body", b"")
            if not message.get("more_body", False):
                over.set()

    if body:
        headers = {"content-length": str(len(body)), "content-type": "application/json", **headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("utf-8")) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
    }
    await app(scope, receive, send)
    return answered

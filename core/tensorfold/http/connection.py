"""The receiving side of one HTTP request: a bounded body, and the news that the client has hung up.

Falcon looks for a disconnect only between the events of a stream, and not at all in `resp.stream`. So the ASGI `receive`
belongs to this class: once the body is read, a task waits in it and calls back at once when the client goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from tensorfold.errors import PayloadTooLarge, RequestError
from tensorfold.http.settings import HttpSettings

__all__ = ["BodyTimeout", "ClientGone", "Connection", "Message", "Receive", "Send"]

Message: TypeAlias = MutableMapping[str, Any]
"""An ASGI message."""
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


class ClientGone(Exception):
    """The client has hung up: there is nobody to answer."""


class BodyTimeout(RequestError):
    """The client pauses for too long while it sends its body."""

    status = 408


class Connection:
    """Wraps one request's ASGI `receive`; `receive` of this class is what the application reads instead."""

    def __init__(self, receive: Receive, content_length: str | None, settings: HttpSettings) -> None:
        self._receive = receive
        self._settings = settings
        self._told = int(content_length) if content_length and content_length.isdecimal() else 0
        self._read = 0
        self._begun: float | None = None
        self._opened = False
        self._watch: asyncio.Task[None] | None = None

    async def receive(self) -> Message:
        """The next ASGI message.

        The first is an empty piece of the body and comes without reading: Falcon waits for it before it routes, and
        the headers shall be answered (401, 404) before the client is asked for its body.

        Raises:
            PayloadTooLarge: the body is longer than the bound, as told or as counted.
            BodyTimeout: no piece has come for too long, or all of it takes too long.
        """
        if not self._opened:
            self._opened = True
            return {"type": "http.request", "body": b"", "more_body": True}
        bound = self._settings.max_body
        if self._told > bound:
            raise _too_large(bound)
        now = asyncio.get_running_loop().time()
        if self._begun is None:
            self._begun = now
        elif now - self._begun >= self._settings.body_seconds:
            raise BodyTimeout(f"the body has taken more than {self._settings.body_seconds:g} seconds")
        try:
            async with asyncio.timeout(self._settings.body_idle_seconds):
                message = await self._receive()
        except TimeoutError:
            pause = self._settings.body_idle_seconds
            raise BodyTimeout(f"nothing more of the body has come for {pause:g} seconds") from None
        self._read += len(message.get("body", b""))
        if self._read > bound:
            raise _too_large(bound)
        return message

    async def body(self) -> bytes:
        """The whole body.

        Raises:
            ClientGone: the client hung up before its end.
            PayloadTooLarge, BodyTimeout: as `receive`.
        """
        self._opened = True
        pieces: list[bytes] = []
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            pieces.append(message.get("body", b""))
            more = message.get("more_body", False)
        return b"".join(pieces)

    def watch(self, hang_up: Callable[[], None]) -> None:
        """Call `hang_up`, once, when the client goes. The body has been read."""
        self._watch = asyncio.create_task(self._wait(hang_up))

    async def _wait(self, hang_up: Callable[[], None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        hang_up()

    def close(self) -> None:
        """The request has been answered: watch no longer."""
        if self._watch is not None:
            self._watch.cancel()


def _too_large(bound: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body is longer than {bound:,} bytes, the most that this server reads")

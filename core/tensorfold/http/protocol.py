"""uvicorn's HTTP protocol with bounds on clients that send too much, or read and write too slowly.

The parser itself collects a request line, headers and trailers of any size, for any time, and throws away the rest of a body
that has been answered for any time; and a writer waits for its reader for ever. And it leaves out the body of whoever offers
to go on with another protocol, as Java's client does with HTTP/2 at each first request: here that is no more than an offer.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tensorfold.errors import DecodeError, Rejected, RequestError
from tensorfold.http.envelopes import PlainErrors
from tensorfold.http.outlet import EXTENSION
from tensorfold.http.settings import ServerSettings

__all__ = ["bounded_protocol"]

_FRAMING: Final = (b"content-length", b"transfer-encoding")
"""What says where a body ends."""
_CHUNKING: Final = 16
"""Bytes that chunks may have besides each byte of a body."""


class _BoundedProtocol(HttpToolsProtocol):
    """Counts the bytes and the time of each head; refuses connections past the bound, and cuts those that read nothing."""

    settings: ServerSettings

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head = 0
        self._in_head = True
        self._known_head = False
        """What the parser reads now is of a head that was read before."""
        self._beside = 0
        """Bytes behind a head that were no body: the sizes of chunks, and trailers; less what bodies may have of them."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._rest_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        if len(self.connections) > self.settings.max_connections:
            most = self.settings.max_connections
            error = Rejected(
                f"the server has {most} connections already; try again shortly", code="too_many_connections"
            )
            self._refuse("503 Service Unavailable", error)
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self._rest_came()
        self._reader_moved()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            if self._head > self.settings.max_head:
                self._refuse_head()
                return
            if self._head_timer is None:
                self._await_head()
            # The beginning of a body may come with it, so only what came before and did not end the head counts.
            self._head += len(data)
            self._feed(data)
            return
        self._beside += len(data)
        self._feed(data)
        if self._beside > self.settings.max_head:
            # Trailers would be kept, and nobody reads them; there is no telling where they end.
            self.transport.close()

    def _feed(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._go_on(data[offer.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _go_on(self, rest: bytes) -> None:
        """Read on in a request whose body the parser was about to leave out, with a parser that knows nothing of the offer."""
        self.parser = httptools.HttpRequestParser(self)
        framing = b"".join(b"%b: %b\r\n" % each for each in self.headers if each[0] in _FRAMING)
        self._known_head = True
        self._feed(b"POST / HTTP/1.1\r\n%b\r\n" % framing)
        self._known_head = False
        if not self.transport.is_closing():
            self._feed(rest)

    def on_message_begin(self) -> None:
        if not self._known_head:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._known_head:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._known_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._known_head:
            self._head_came()
            super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        scope: dict[str, Any] = cycle.scope  # type: ignore[assignment]
        scope["extensions"] = {**scope.get("extensions", {}), EXTENSION: _CycleOutlet(cycle)}
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._beside -= (1 + _CHUNKING) * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # without its body, if it has one: `_go_on`
        super().on_message_complete()
        self._in_head = True
        self._beside = 0
        if self._rest_came():
            # The last bytes have ended the time in which the connection may be idle, and the answer was before them.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # The rest of a body that is answered before its end is thrown away, and nobody else bounds its time.
        if not self._in_head and self.cycle.response_complete and not self.transport.is_closing():
            self._rest_timer = self.loop.call_later(self.settings.idle_seconds, self.timeout_keep_alive_handler)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reader_moved()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        # A transport closes when all is written, which a client that reads nothing would put off for ever.
        self._await_reader()

    def _await_reader(self) -> None:
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.settings.write_seconds, self.transport.abort)

    def _reader_moved(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _rest_came(self) -> bool:
        """Whether the rest of an answered body was awaited; it is no longer."""
        awaited, self._rest_timer = self._rest_timer, None
        if awaited is not None:
            awaited.cancel()
        return awaited is not None

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.settings.head_seconds, self._head_late)

    def _head_came(self) -> None:
        self._in_head = False
        self._head = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_late(self) -> None:
        self._head_timer = None
        # Before the first head there is none, whatever its type says.
        if not getattr(self.cycle, "response_complete", True):
            # Behind a reply that is on its way nothing is held by it: an empty line, say, that some clients send.
            self._await_head()
        elif not self.transport.is_closing():
            self.transport.close()

    def _refuse_head(self) -> None:
        message = f"request line and headers are longer than {self.settings.max_head:,} bytes"
        self._refuse("431 Request Header Fields Too Large", DecodeError(message, code="head_too_large"))

    def _refuse(self, status: str, error: RequestError) -> None:
        """Answer before anything is known of the request, in the core's own envelope, and end the connection."""
        body = PlainErrors().encode_error(error, "")
        retry = "" if error.retry_after is None else f"retry-after: {math.ceil(error.retry_after)}\r\n"
        head = (
            f"HTTP/1.1 {status}\r\ncontent-type: {PlainErrors.media_type}\r\n{retry}"
            f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class _CycleOutlet:
    """Implements `Outlet` over one exchange of a connection: writes what uvicorn's `send` would, and waits for nobody."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    @property
    def ready(self) -> bool:
        """Chunked is how uvicorn frames every body whose length was not told."""
        cycle = self._cycle
        return (
            cycle.chunked_encoding is True
            and not cycle.flow.write_paused
            and not cycle.disconnected
            and not cycle.response_complete
        )

    def write(self, piece: bytes) -> None:
        """One chunk."""
        self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))


def bounded_protocol(settings: ServerSettings) -> type[Any]:
    """The protocol class with these bounds; uvicorn makes one object of it a connection."""
    return type("BoundedProtocol", (_BoundedProtocol,), {"settings": settings})

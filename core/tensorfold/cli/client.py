"""An HTTP/1.1 client for one server, over asyncio and h11: streams, keeps connections, and adds no waiting of its own."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import h11

from tensorfold.config import ServeConfig
from tensorfold.errors import ClientError, ConfigError
from tensorfold.ir import JSON

__all__ = ["Address", "Client", "Reply", "local_url"]

_UNIX = "unix:"
_CONNECT_SECONDS = 10.0
_READ = 64 * 1024


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is."""

    host: str
    port: int
    tls: bool
    prefix: str
    """What stands before `/v1/...` in every path; usually empty."""
    socket: Path | None = None
    """A socket file to connect to instead of host and port."""

    @classmethod
    def of(cls, url: str) -> Address:
        """Read `http://host:port`, with or without a final `/v1`, or `unix:PATH`.

        Raises:
            ConfigError: it is no such URL.
        """
        if url.startswith(_UNIX):
            return cls("localhost", 80, False, "", Path(os.path.expanduser(url.removeprefix(_UNIX))))
        try:
            parts = urlsplit(url if "//" in url else f"http://{url}")
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"{url} is no URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url} is no URL of a server (http://127.0.0.1:8080)")
        tls = parts.scheme == "https"
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, port or (443 if tls else 80), tls, prefix)

    @property
    def authority(self) -> str:
        """`host:port`, as the Host header has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        if self.socket is not None:
            return f"{_UNIX}{self.socket}"
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"


def local_url(config: ServeConfig) -> str:
    """Where a server that these settings describe is reached from this machine."""
    if config.unix_socket is not None:
        return f"{_UNIX}{config.unix_socket}"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)
    scheme = "http" if config.tls_cert is None else "https"
    return f"{scheme}://[{host}]:{config.port}" if ":" in host else f"{scheme}://{host}:{config.port}"


class _Connection:
    """One connection, which carries one exchange at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._state = h11.Connection(h11.CLIENT)

    async def send(self, request: h11.Request, body: bytes) -> h11.Response:
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            if data := self._state.send(event):
                self._writer.write(data)
        await self._writer.drain()
        while True:
            match await self._next():
                case h11.Response() as response:
                    return response
                case h11.InformationalResponse():
                    continue
                case _:
                    raise ClientError("the server closed the connection without an answer")

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            match await self._next():
                case h11.Data(data=data):
                    yield bytes(data)
                case h11.EndOfMessage():
                    return
                case _:
                    raise ClientError("the server broke off its answer")

    def reuse(self) -> bool:
        """Make ready for the next exchange, if both sides allow one."""
        if self._state.our_state is not h11.DONE or self._state.their_state is not h11.DONE:
            return False
        self._state.start_next_cycle()
        return not self._reader.at_eof()

    def close(self) -> None:
        self._writer.close()

    async def _next(self) -> object:
        while True:
            event = cast("object", self._state.next_event())
            if event is not h11.NEED_DATA:
                return event
            self._state.receive_data(await self._reader.read(_READ))


class Reply:
    """An answer whose head is there and whose body comes."""

    def __init__(self, response: h11.Response, connection: _Connection) -> None:
        self.status = response.status_code
        self._connection = connection

    def chunks(self) -> AsyncIterator[bytes]:
        """The body, as it comes.

        Raises:
            ClientError: the server broke off.
        """
        return self._connection.chunks()

    async def body(self) -> bytes:
        """The whole body."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def json(self) -> JSON:
        """The whole body, parsed.

        Raises:
            ClientError: it is no JSON.
        """
        body = await self.body()
        try:
            return cast("JSON", json.loads(body))
        except ValueError:
            raise ClientError(f"the server's answer is no JSON: {body[:200]!r}") from None


class Client:
    """Talks to one server; connections are kept and used again."""

    def __init__(self, address: Address, key: str | None = None) -> None:
        self.address = address
        self._headers = {"Host": address.authority, "User-Agent": "tensorfold", "Accept": "*/*"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._idle: list[_Connection] = []

    @asynccontextmanager
    async def request(
        self, method: str, path: str, body: Mapping[str, JSON] | bytes | None = None
    ) -> AsyncGenerator[Reply]:
        """Send a request and wait for the head of its answer; leaving the block early closes the connection.

        A body in bytes is sent as it is, and said to be JSON like any other.

        Raises:
            ClientError: the server cannot be reached or breaks off.
        """
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Length": str(len(content))}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = h11.Request(method=method, target=self.address.prefix + path, headers=list(headers.items()))
        connection = self._idle.pop() if self._idle else await self._connect()
        whole = False
        try:
            yield Reply(await connection.send(request, content), connection)
            whole = True
        except (OSError, h11.RemoteProtocolError) as error:
            raise ClientError(f"{self.address} broke off: {error or type(error).__name__}") from error
        finally:
            if whole and connection.reuse():
                self._idle.append(connection)
            else:
                connection.close()

    async def _connect(self) -> _Connection:
        address = self.address
        context = ssl.create_default_context() if address.tls else None
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                if address.socket is not None:
                    reader, writer = await asyncio.open_unix_connection(address.socket)
                else:
                    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
        except TimeoutError:
            raise ClientError(f"{address} does not answer within {_CONNECT_SECONDS:g} seconds") from None
        except OSError as error:
            raise ClientError(f"no server answers at {address}: {_reason(error)}") from None
        return _Connection(reader, writer)

    async def close(self) -> None:
        """Close the kept connections."""
        for connection in self._idle:
            with suppress(OSError):
                connection.close()
        self._idle.clear()
        # Transports close in the loop's next turn; a loop that ends before would complain.
        await asyncio.sleep(0)


def _reason(error: OSError) -> str:
    """The system's word for it; asyncio puts its own in front of it."""
    if isinstance(error, ssl.SSLError):
        # Its number is OpenSSL's, which is another error of the system's.
        return f"its certificate is not trusted here, or it speaks no TLS: {error.reason}; SSL_CERT_FILE names one to trust"
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)

"""What the HTTP front can be told. Every bound has a default that suits a server for a few hundred clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["HttpSettings", "ServerSettings"]

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The application's own limits; they hold under any ASGI server."""

    max_body: int = 32 * MIB
    """Bytes of a request body; a longer one is a 413, before it is read when its length is told."""
    body_idle_seconds: float = 60.0
    """How long a client may pause while it sends its body."""
    body_seconds: float = 900.0
    """How long all of a body may take, so that nobody holds a place with a byte now and then."""
    max_head: int = 64 * 1024
    """Bytes of request line and headers; more are a 431."""
    max_requests: int = 1024
    """Requests in progress, over all routes but `/health`; one more is a 503."""
    keep_alive_seconds: float = 10.0
    """After so long without a byte, a stream gets its dialect's keep-alive."""
    max_pending: int = 4 * MIB
    """Characters that may wait for a client that reads slowly; more end its stream with an error."""
    front_threads: int = 2
    """Threads that decode large bodies."""
    front_queue: int = 64
    """Bodies that may wait for them; one more is a 503."""
    front_bytes: int = 128 * 1024
    """Bodies longer than this are decoded there; shorter ones take well under a millisecond on the event loop."""
    metrics_open: bool = False
    """Whether `/metrics` and `/v1/metrics` answer without a key."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may read answers (`https://app.example`), or `*` for all; empty: none."""
    allowed_hosts: tuple[str, ...] | None = None
    """Names in the Host header that are answered, besides those of this machine; None: any name."""
    default_dialect: str = "openai"
    """Whose envelope errors have on paths that are nearer to no other dialect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How `run_server` listens and ends."""

    host: str = "127.0.0.1"
    port: int = 8080
    """0 takes any free port."""
    unix_socket: Path | None = None
    """A socket file instead of host and port; its owner alone may connect."""
    tls_cert: Path | None = None
    """A certificate chain in PEM; None: no TLS."""
    tls_key: Path | None = None
    """Its key; None: it stands in the same file."""
    drain_seconds: float = 5.0
    """How long running replies may go on after the first signal; then they are aborted."""
    flush_seconds: float = 2.0
    """How long aborted replies may take to reach their clients."""
    idle_seconds: int = 75
    """How long a kept connection may be idle, longer than the pools of the usual clients keep theirs; and how long the rest
    of a body may take that was answered before its end."""
    head_seconds: float = 30.0
    """How long a client may take to send its request line and headers."""
    max_head: int = 64 * 1024
    """Bytes of an unfinished request line and headers; more are a 431, without waiting for their end."""
    max_connections: int = 2048
    """Open connections; one more gets a 503 and is closed."""
    write_seconds: float = 60.0
    """How long a client may take nothing of what is written to it before its connection is cut."""
    refresh_seconds: float = 1.0
    """How often the auth sources look whether what they read has changed."""

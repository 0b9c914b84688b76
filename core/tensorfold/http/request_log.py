"""Every request that generates, written to a file of its own: `--log-requests DIR`.

The file is there before the request is computed, so that one which ends the server can be read afterwards; when it has
ended, the answer's figures come in. A thread of its own writes. What it cannot write is lost, and no request suffers.
"""

from __future__ import annotations

import datetime
import json
import os
import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import msgspec
import structlog

from tensorfold.errors import ConfigError
from tensorfold.observe.recorded import RecordedAnswer, RecordedRequest, redacted_body, redacted_headers

__all__ = ["Asked", "Recording", "RequestLog", "write_private"]

PENDING_BYTES = 64 * 1024 * 1024
"""Bodies that may wait for the writer; beyond that requests are not written, so that memory stays bounded."""
QUIET_SECONDS = 60.0
"""Between two warnings of what could not be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is known when a request's body has come."""

    id: str
    model: str
    """What is served."""
    created: int
    """Seconds since the epoch."""
    label: str
    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    keys: Collection[str]
    """What the headers offered; taken out of the body."""
    body: bytes


class RequestLog:
    """Writes into one folder. `begin` is called on the event loop; `close` when no request is in progress."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            ConfigError: the folder cannot be made or written to.
        """
        self._folder = folder
        self._server = f"tensorfold {version('tensorfold')}"
        self._lock = threading.Lock()
        self._waiting = 0
        self._warned = -QUIET_SECONDS
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigError(f"requests cannot be logged to {folder}: {error.strerror}") from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ConfigError(f"requests cannot be logged to {folder}: it may not be written to")
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="tensorfold-request-log")

    def begin(self, asked: Asked) -> Recording:
        """A request's body has come."""
        recording = Recording(self, asked)
        recording.write(None)
        return recording

    def put(self, asked: Asked, answer: RecordedAnswer | None) -> None:
        """Write a file, or write it anew, in the log's own thread."""
        with self._lock:
            if self._waiting > PENDING_BYTES:
                self._warn("the disk is too slow")
                return
            self._waiting += len(asked.body)
        self._executor.submit(self._write, asked, answer)

    def _write(self, asked: Asked, answer: RecordedAnswer | None) -> None:
        try:
            write_private(self._path(asked), self._encoded(asked, answer))
        except Exception as error:  # noqa: BLE001 - nobody waits for this thread, and a log must harm nothing
            with self._lock:
                self._warn(str(error))
        finally:
            with self._lock:
                self._waiting -= len(asked.body)

    def _path(self, asked: Asked) -> Path:
        moment = datetime.datetime.fromtimestamp(asked.created, datetime.UTC)
        return self._folder / f"{moment:%Y%m%dT%H%M%SZ}-{asked.id}.json"

    def _encoded(self, asked: Asked, answer: RecordedAnswer | None) -> bytes:
        body, text = redacted_body(asked.body, asked.keys)
        record = RecordedRequest(
            server=self._server,
            model=asked.model,
            id=asked.id,
            time=datetime.datetime.fromtimestamp(asked.created, datetime.UTC).isoformat(),
            label=asked.label,
            method=asked.method,
            path=asked.path,
            headers=redacted_headers(asked.headers),
            body=body,
            body_text=text,
            answer=answer,
        )
        # The standard library's writer takes every number that its reader gave.
        return json.dumps(msgspec.structs.asdict(record), default=_plain, indent=1).encode("utf-8")

    def _warn(self, problem: str) -> None:
        """Say it, once in a while. The lock is held."""
        now = time.monotonic()
        if now - self._warned >= QUIET_SECONDS:
            self._warned = now
            structlog.get_logger().warning("requests are not being logged", folder=str(self._folder), problem=problem)

    def close(self) -> None:
        """Write what waits, and end the thread."""
        self._executor.shutdown(wait=True)


class Recording:
    """One request's file."""

    def __init__(self, log: RequestLog, asked: Asked) -> None:
        self._log = log
        self._asked = asked

    def write(self, answer: RecordedAnswer | None) -> None:
        """Write it as it stands; with the answer when there is one."""
        self._log.put(self._asked, answer)


def _plain(value: object) -> object:
    """What the standard library's writer does not know: our own values."""
    return msgspec.to_builtins(value)


def write_private(path: Path, content: bytes) -> None:
    """A file that its owner alone may read, whole or not at all.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    part = path.with_suffix(".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise

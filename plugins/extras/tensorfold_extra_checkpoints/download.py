"""One file from the Hub: in pieces if need be, checked against its digest, and in its place only when it is right."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from tensorfold.errors import CheckpointError
from tensorfold_extra_checkpoints.hub_files import Hub, RemoteFile

__all__ = ["download"]

PIECE: Final = 1024 * 1024
TRIES: Final = 6
"""Without a single byte of progress, after which a download is given up; what is there stays for the next one."""
PART: Final = ".tensorfold-part"

Progress = Callable[[int], None]
"""Told how many bytes of the file are there."""


def download(
    hub: Hub,
    url: str,
    file: RemoteFile,
    target: Path,
    progress: Progress,
    pause: Callable[[float], None],
) -> None:
    """Bring a file's content to `target`, going on from what an earlier call left behind.

    Args:
        pause: waits so many seconds before it is tried again.

    Raises:
        CheckpointError: the connection broke too often, the disk is full, or the content is not what the Hub lists.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + PART)
    with _alone(part) as content:
        tries = 0
        while (there := content.seek(0, os.SEEK_END)) < file.size:
            progress(there)
            problem = _go_on(hub, url, content, there, file.size, progress)
            if problem is None:
                continue
            tries = 0 if content.seek(0, os.SEEK_END) > there else tries + 1
            if tries >= TRIES:
                raise CheckpointError(
                    f"{file.path} cannot be downloaded: {problem}; {there:,} of {file.size:,} bytes are kept, and"
                    " the same command goes on from there"
                )
            pause(min(2.0**tries, 20.0))
        progress(file.size)
        content.flush()
        os.fsync(content.fileno())
        if _digest(content, file) != file.digest:
            part.unlink(missing_ok=True)
            raise CheckpointError(
                f"{file.path} is not what the Hub lists: its digest is another one. What came was thrown away: pull again"
            )
        part.replace(target)


def _go_on(hub: Hub, url: str, content: IO[bytes], start: int, size: int, progress: Progress) -> str | None:
    """Read more of the file; what went wrong, if anything that may go right the next time.

    Raises:
        CheckpointError: what will not.
    """
    try:
        with hub.open(url, start) as response:
            if response.status != 206 and start:
                # The server gives the whole file again.
                content.truncate(0)
                start = 0
            content.seek(start)
            while piece := response.read(PIECE):
                start += len(piece)
                if start > size:
                    content.truncate(0)
                    raise CheckpointError(f"{url} sends more than the {size:,} bytes that the Hub lists")
                _write(content, piece)
                progress(start)
        return None if start == size else "the connection was cut"
    except urllib.error.HTTPError as error:
        if error.code == 416:
            content.truncate(0)
        elif error.code not in (408, 429) and error.code < 500:
            raise CheckpointError(f"{url} cannot be downloaded: the server answers {error.code}") from None
        return f"the server answers {error.code}"
    except (OSError, http.client.HTTPException) as error:
        return str(getattr(error, "reason", None) or error) or type(error).__name__


def _write(content: IO[bytes], piece: bytes) -> None:
    try:
        content.write(piece)
    except OSError as error:
        raise CheckpointError(f"the download cannot be written: {error.strerror}") from None


def _digest(content: IO[bytes], file: RemoteFile) -> str:
    """The file's digest, of the kind that the Hub lists of it."""
    digest = hashlib.sha256()
    if len(file.digest) == 40:
        digest = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)
    content.seek(0)
    while piece := content.read(PIECE):
        digest.update(piece)
    return digest.hexdigest()


@contextmanager
def _alone(part: Path) -> Generator[IO[bytes]]:
    """The unfinished file, held so that no other download writes to it.

    Raises:
        CheckpointError: another one does, or it cannot be opened.
    """
    try:
        file = open(os.open(part, os.O_RDWR | os.O_CREAT, 0o644), "r+b")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise CheckpointError(f"{part} cannot be written: {error.strerror}") from None
    with file:
        try:
            import fcntl
        except ImportError:  # not on every platform, and then two downloads at once are the user's concern
            pass
        else:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CheckpointError(f"another download is writing {part}: wait for it") from None
        yield file

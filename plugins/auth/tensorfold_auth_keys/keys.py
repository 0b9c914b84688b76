"""Keys as digests, and the grammar of key files. A key itself is never kept."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tensorfold.errors import ConfigError

__all__ = [
    "DIGEST_MARK",
    "FileStamp",
    "Key",
    "check_label",
    "digest_of",
    "named_keys",
    "read_key_file",
    "read_private",
    "stamp_of",
]

MAX_FILE = 1024 * 1024
"""Bytes of a key file."""
MAX_KEY = 4096
"""Characters of a key."""

DIGEST_MARK = "sha256:"
"""What stands before a digest in a file, where it takes the place of a key that has a label."""

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Key:
    """A configured key."""

    label: str
    """Its name in logs and metrics."""
    digest: bytes
    """SHA-256 of the key."""

    def __repr__(self) -> str:
        return f"Key({self.label})"


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What tells one content of a file from the next, without reading it."""

    inode: int
    size: int
    modified: int
    changed: int
    """Both in nanoseconds; permissions change only the second."""


def digest_of(key: str) -> bytes:
    """SHA-256 of a key; bytes of a header that are no UTF-8 keep their value."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def named_keys(keys: Sequence[str], source: str) -> tuple[Key, ...]:
    """Keys without names of their own, labelled `source-N`.

    Raises:
        ConfigError: one is empty, or no header can carry it.
    """
    return tuple(
        Key(f"{source}-{number}", digest_of(_checked(key, f"{source} key {number}")))
        for number, key in enumerate(keys, start=1)
    )


def stamp_of(path: Path) -> FileStamp | None:
    """The file's stamp; None: there is no file, or it may not be looked at."""
    try:
        status = path.stat()
    except OSError:
        return None
    return FileStamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def read_key_file(path: Path) -> tuple[Key, ...]:
    """The keys of a file.

    Raises:
        ConfigError: it cannot be read, others may read it, it is malformed, or it holds no key. Never shows a key.
    """
    keys = tuple(_keys_of(read_private(path), path))
    if not keys:
        raise ConfigError(f"{path} holds no keys: write one a line, or remove --api-key-file")
    return keys


def read_private(path: Path) -> str:
    """The text of a file that its owner alone may read.

    Raises:
        ConfigError: it cannot be read, is none, or others may read it.
    """
    try:
        # Not to wait for a writer, should it be a pipe.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(f"{path} is no regular file, and cannot be the key file")
            if os.name == "posix" and status.st_mode & _OTHERS:
                mode = stat.S_IMODE(status.st_mode)
                raise ConfigError(f"{path} is open to other users (mode {mode:04o}): chmod 600 {path}")
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise ConfigError(f"the key file {path} cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE:
        raise ConfigError(f"{path} is longer than {MAX_FILE:,} bytes, and cannot be a key file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 at byte {error.start}") from None


def _keys_of(text: str, path: Path) -> Iterator[Key]:
    unnamed = 0
    for number, line in enumerate(text.split("\n"), start=1):
        entry = line.strip(" \t\r")
        if not entry or entry.startswith("#"):
            continue
        label, colon, key = (part.strip(" \t") for part in entry.partition(":"))
        if not colon:
            unnamed += 1
            label, key = f"file-{unnamed}", entry
        else:
            check_label(label, f"{path}, line {number}: ")
        yield Key(label, _digest(key, f"{path}, line {number}: the key"))


def check_label(label: str, place: str = "") -> None:
    """
    Raises:
        ConfigError: it is no label.
    """
    if not _LABEL.fullmatch(label):
        raise ConfigError(f"{place}a label has at most 64 letters, digits, dots, underscores or hyphens")


def _digest(entry: str, place: str) -> bytes:
    """Of a key, or the one that the file holds in its place."""
    digest = entry.removeprefix(DIGEST_MARK)
    if digest == entry:
        return digest_of(_checked(entry, place))
    if not _DIGEST.fullmatch(digest):
        raise ConfigError(f"{place} begins with {DIGEST_MARK} and is no SHA-256 in 64 lower-case digits")
    return bytes.fromhex(digest)


def _checked(key: str, place: str) -> str:
    if not key:
        raise ConfigError(f"{place} is empty")
    if len(key) > MAX_KEY:
        raise ConfigError(f"{place} is longer than {MAX_KEY} characters")
    if any(character.isspace() or not character.isprintable() for character in key if not _is_escape(character)):
        raise ConfigError(f"{place} holds blanks or control characters, which no header carries")
    return key


def _is_escape(character: str) -> bool:
    """A byte of the command line or environment that is no UTF-8."""
    return "\udc80" <= character <= "\udcff"

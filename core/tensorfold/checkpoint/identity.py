"""What a checkpoint is known by: a digest that is cheap, and changes when its files do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["FileMark", "identity"]


@dataclass(frozen=True, slots=True)
class FileMark:
    """One file, without its weights."""

    name: str
    size: int
    """In bytes."""
    modified: int
    """In nanoseconds since the epoch."""
    header: bytes = b""
    """What the file says of itself: metadata and tensor infos, or a small file's whole content."""


def identity(marks: Iterable[FileMark]) -> str:
    """The digest of these files, in whatever order they come: 64 hexadecimal digits."""
    total = hashlib.sha256()
    for mark in sorted(marks, key=lambda mark: mark.name):
        line = f"{mark.name}\0{mark.size}\0{mark.modified}\0".encode(errors="surrogateescape")
        total.update(hashlib.sha256(line + hashlib.sha256(mark.header).digest()).digest())
    return total.hexdigest()

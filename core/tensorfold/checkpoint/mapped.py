"""A file mapped into memory, read within its bounds."""

from __future__ import annotations

import mmap
from pathlib import Path

from tensorfold.errors import CheckpointDamaged, CheckpointNotFound

__all__ = ["MappedFile"]


class MappedFile:
    """A read-only file. Its pages live as long as an array that views them."""

    def __init__(self, path: Path) -> None:
        """Map a file.

        Raises:
            CheckpointNotFound: it is not there, or may not be read.
            CheckpointDamaged: it is empty.
        """
        self.path = path
        try:
            with path.open("rb") as file:
                status = path.stat()
                self.size = status.st_size
                """In bytes."""
                self.modified = status.st_mtime_ns
                """When the file was last changed, in nanoseconds since the epoch."""
                if not self.size:
                    raise CheckpointDamaged(path, 0, "the file is empty")
                self.bytes = mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ)
        except OSError as error:
            raise CheckpointNotFound(f"{path} cannot be read: {error.strerror or error}") from error

    def check(self, offset: int, length: int, what: str) -> None:
        """Hold that `length` bytes of `what` lie in the file from `offset` on.

        Raises:
            CheckpointDamaged: they do not.
        """
        if length > self.size - offset:
            raise CheckpointDamaged(
                self.path, offset, f"{what} takes {length} bytes, and the file ends after {self.size - offset}"
            )

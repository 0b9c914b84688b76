"""The source: recognizes callers by digests, and follows its file."""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from tensorfold.contracts.auth import Credentials, Principal
from tensorfold.errors import ConfigError
from tensorfold_auth_keys.keys import FileStamp, Key, digest_of, named_keys, read_key_file, stamp_of

__all__ = ["KeySource"]

LOOK_EVERY = 1.0
"""Seconds between two looks at the file."""


class KeySource:
    """Implements `contracts.auth.AuthSource`.

    While the file is bad (empty, unreadable, malformed, gone), nobody is recognized, whatever key they have: it may
    have been replaced to take keys away.
    """

    name = "keys"

    def __init__(
        self,
        *,
        flags: Sequence[str] = (),
        variable: Sequence[str] = (),
        file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            flags: keys of the command line.
            variable: keys of the environment variable; blanks around them and empty ones do not count.
            file: a key file.
            clock: seconds that never go back.

        Raises:
            ConfigError: a key or the file cannot be used.
        """
        entries = [entry.strip() for entry in variable]
        self._fixed = (*named_keys(flags, "cli"), *named_keys([entry for entry in entries if entry], "env"))
        self._file = file
        self._clock = clock
        self._lock = threading.Lock()
        self._looked = clock()
        self._stamp: FileStamp | None = None
        self._keys: tuple[Key, ...] | None = self._fixed
        """None: the file is bad, and nobody is recognized."""
        if file is not None:
            self._stamp = stamp_of(file)
            self._keys = (*self._fixed, *read_key_file(file))

    @property
    def guards(self) -> bool:
        """Whether any key is configured; a file that has become bad still counts."""
        return bool(self._fixed) or self._file is not None

    @property
    def description(self) -> str:
        """For the start-up block."""
        keys = self._keys
        if keys is None:
            return "closed: the key file cannot be used"
        return "1 key" if len(keys) == 1 else f"{len(keys)} keys"

    def identify(self, credentials: Credentials) -> Principal | None:
        """The caller. Every digest is compared in constant time, whichever matches, and however wrong the key is."""
        found: Principal | None = None
        keys = self._keys or ()
        for offered in credentials.offered or ("",):
            digest = digest_of(offered)
            for key in keys:
                if hmac.compare_digest(key.digest, digest) and found is None:
                    found = Principal(key.label)
        return found

    def refresh(self) -> None:
        """Read the file again when it has changed, or while it is bad; looks at most once a second."""
        now = self._clock()
        if self._file is None or now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        if self._keys is None or stamp_of(self._file) != self._stamp:
            self.reload()

    def reload(self) -> None:
        """Read the file at once."""
        if self._file is None:
            return
        with self._lock:
            was_closed = self._keys is None
            self._stamp = stamp_of(self._file)  # before reading: a change meanwhile is seen the next time
            try:
                self._keys = (*self._fixed, *read_key_file(self._file))
            except ConfigError as error:
                self._keys = None
                if not was_closed:
                    structlog.get_logger().error("no key is accepted until the key file is good", problem=str(error))
                return
            structlog.get_logger().info("keys read", keys=len(self._keys))

    def __repr__(self) -> str:
        return f"KeySource({self.description})"

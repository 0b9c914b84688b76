"""Kept prefixes on disk: what memory has no room for, and what a restarted server begins with.

One file a prefix, in a folder that only its owner may read (it holds what users wrote), named by what it holds, checked
by a digest before anything of it is used. The folder's name comes from the runner's identity: weights, numerics and chunk
step; states of another make are never looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Full, Queue, SimpleQueue
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from tensorfold.compute.runner import Runner
from tensorfold.engine.job import Job
from tensorfold.engine.kept import Keeping, KeptPrefix, serves
from tensorfold.engine.plan import Chunk
from tensorfold.engine.prefix import PrefixTree
from tensorfold.engine.spill_file import (
    DamagedFile,
    SpillHeader,
    drop_unfinished,
    read_header,
    read_spilled,
    write_spilled,
)
from tensorfold.errors import BackendError, ConfigError, OutOfPages

__all__ = ["SpillShelf"]

SUFFIX = ".prefix"
PENDING = 2
"""Prefixes that may wait for the writer; beyond that they are not spilled, so that memory stays bounded."""
FAREWELL = 2.0
"""Seconds that writing may take when the engine ends."""


@dataclass(frozen=True, slots=True, eq=False)
class _Spilled:
    """One file."""

    path: Path
    ids: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    keeping: Keeping
    bytes: int


class SpillShelf:
    """Implements `kept.Shelf` over a folder. Used by the engine thread; a thread of its own writes."""

    def __init__(self, folder: Path, limit: int, runner: Runner[Any]) -> None:
        """`limit` is in bytes of files. Files that are there already serve at once.

        Raises:
            ConfigError: the folder cannot be made or read.
        """
        self._identity = runner.identity
        self._folder = folder / hashlib.sha256(runner.identity.encode()).hexdigest()[:16]
        self._limit = limit
        self._tree: PrefixTree[_Spilled] = PrefixTree()
        self._order: OrderedDict[_Spilled, None] = OrderedDict()
        """Least recently used first."""
        self._bytes = 0
        self._tokens = 0
        self._closing: float | None = None
        """When the last files have to be written."""
        self._written: SimpleQueue[_Spilled] = SimpleQueue()
        self._queue: Queue[tuple[_Spilled, Mapping[str, NDArray[np.generic]]] | None] = Queue(PENDING)
        try:
            for each in (folder, self._folder):
                _make_private(each)
            drop_unfinished(self._folder)
            self._index()
        except OSError as error:
            raise ConfigError(f"kept prompts cannot be spilled to {folder}: {error.strerror}") from error
        self._writer = threading.Thread(target=self._write_all, name="tensorfold-spill", daemon=True)
        self._writer.start()

    def _index(self) -> None:
        """What earlier servers left, the oldest first."""
        paths = sorted(self._folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime)
        for path in paths:
            try:
                header = read_header(path)
            except (OSError, DamagedFile) as error:
                self._discard(path, error)
                continue
            if header.identity == self._identity:
                self._add(_Spilled(path, header.ids, header.plan, header.keeping, path.stat().st_size))

    def __len__(self) -> int:
        return len(self._order)

    @property
    def bytes(self) -> int:
        """Of all files."""
        return self._bytes

    @property
    def tokens(self) -> int:
        """Of all files' prefixes, end to end."""
        return self._tokens

    # ---- putting -------------------------------------------------------------------------------------------

    def put(self, kept: KeptPrefix, runner: Runner[Any]) -> None:
        """Take a prefix that is about to be given up; one that is there already, or finds the writer busy, is not."""
        self._collect()
        path = self._folder / (_name(kept) + SUFFIX)
        there = next((each for each in self._tree.along(kept.ids) if each.path == path), None)
        if there is not None:
            self._order.move_to_end(there)
            return
        if self._queue.full() and self._closing is None:
            return
        if self._closing is not None and time.monotonic() > self._closing:
            return
        size = kept.snapshot.bytes
        if size > self._limit:
            return
        spilled = _Spilled(path, kept.ids, kept.chunks, kept.keeping, size)
        try:
            wait = None if self._closing is None else max(0.0, self._closing - time.monotonic())
            self._queue.put((spilled, runner.export(kept.snapshot)), block=wait is not None, timeout=wait)
        except Full:
            return

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            spilled, arrays = item
            header = SpillHeader(
                identity=self._identity,
                ids=spilled.ids,
                chunks=tuple((chunk.start, chunk.end) for chunk in spilled.chunks),
                keeping=spilled.keeping,
            )
            try:
                size = write_spilled(spilled.path, header, arrays)
            except OSError as error:
                structlog.get_logger().warning(
                    "a kept prompt could not be written", file=str(spilled.path), reason=str(error)
                )
            else:
                self._written.put(_Spilled(spilled.path, spilled.ids, spilled.chunks, spilled.keeping, size))

    def _collect(self) -> None:
        """What the writer has finished since."""
        while True:
            try:
                spilled = self._written.get_nowait()
            except Empty:
                return
            self._add(spilled)

    def _add(self, spilled: _Spilled) -> None:
        there = next(iter(self._tree.along(spilled.ids)), None)
        if there is not None and len(there.ids) == len(spilled.ids):
            self._forget(there, delete=there.path != spilled.path)
        self._tree.put(spilled.ids, spilled)
        self._order[spilled] = None
        self._bytes += spilled.bytes
        self._tokens += len(spilled.ids)
        while self._bytes > self._limit and len(self._order) > 1:
            self._forget(next(iter(self._order)), delete=True)

    def _forget(self, spilled: _Spilled, *, delete: bool) -> None:
        self._tree.remove(spilled)
        del self._order[spilled]
        self._bytes -= spilled.bytes
        self._tokens -= len(spilled.ids)
        if delete:
            spilled.path.unlink(missing_ok=True)

    # ---- finding -------------------------------------------------------------------------------------------

    def find(self, job: Job, longer_than: int, runner: Runner[Any]) -> KeptPrefix | None:
        """The longest prefix that serves this prompt and is longer than what memory has; it stays on the shelf."""
        self._collect()
        equal = runner.chunk_equals_rows
        for spilled in self._tree.along(job.ids):
            if len(spilled.ids) <= longer_than:
                return None
            if serves(spilled.ids, spilled.chunks, job, equal=equal):
                kept = self._brought(spilled, runner)
                if kept is not None:
                    return kept
        return None

    def _brought(self, spilled: _Spilled, runner: Runner[Any]) -> KeptPrefix | None:
        try:
            header, arrays = read_spilled(spilled.path)
            if (header.identity, header.ids) != (self._identity, spilled.ids):
                raise DamagedFile(f"{spilled.path} holds another prefix than its name says")
            snapshot = runner.import_(arrays)
        except OutOfPages:
            return None
        except (OSError, DamagedFile, BackendError, KeyError, ValueError) as error:
            self._forget(spilled, delete=False)
            self._discard(spilled.path, error)
            return None
        self._order.move_to_end(spilled)
        os.utime(spilled.path)
        return KeptPrefix(spilled.ids, spilled.chunks, snapshot, spilled.keeping)

    @staticmethod
    def _discard(path: Path, error: Exception) -> None:
        structlog.get_logger().warning("a kept prompt on disk is not used", file=str(path), reason=str(error))
        path.unlink(missing_ok=True)

    # ---- the end -------------------------------------------------------------------------------------------

    def closing(self) -> None:
        """From here on `put` waits for the writer, for `FAREWELL` seconds in all."""
        self._closing = time.monotonic() + FAREWELL

    def close(self) -> None:
        """Return when what was put is written."""
        self._queue.put(None)
        self._writer.join(FAREWELL)
        self._collect()


def _make_private(folder: Path) -> None:
    """A folder for its owner alone; one that was there is left as its owner made it, and closed to others."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    else:
        with contextlib.suppress(PermissionError):  # somebody else's, who decides
            folder.chmod(0o700)


def _name(kept: KeptPrefix) -> str:
    plan = ",".join(f"{chunk.start}-{chunk.end}" for chunk in kept.chunks)
    ids = np.asarray(kept.ids, dtype="<u4").tobytes()
    return hashlib.sha256(plan.encode() + b";" + ids).hexdigest()[:32]

"""Calls are recorded while a decoder runs, and carried out together: one call from Python computes a whole Step."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold_backend_cpu.kernels.calls import WORDS, Call
from tensorfold_backend_cpu.memory import Buffer, Memory, Pool, Workspace
from tensorfold_backend_cpu.threads import Team

__all__ = ["Lines", "Machine"]

R = TypeVar("R")

_LINE: Final = 8 * WORDS
_TAPE: Final = 2048
"""Lines of the memory on which single calls are written; when it is full, it is followed by more."""


class Lines:
    """Calls that are recorded again and again."""

    def __init__(self, lines: Iterable[bytes], *kept: object) -> None:
        """`kept` is what the calls refer to."""
        self._kept = kept
        written = b"".join(lines)
        memory = Memory(len(written))
        memory.bytes[:] = np.frombuffer(written, np.uint8)
        self.words: NDArray[np.int64] = memory.array(np.int64, len(written) // 8)
        """All lines, end to end."""
        self.addresses = array("q", range(memory.address, memory.address + len(written), _LINE))

    @staticmethod
    def of(calls: Iterable[Call], *kept: object) -> Lines:
        """The lines of these calls."""
        return Lines((call.words() for call in calls), *kept)


class Machine:
    """The one recorder of a session, used by one thread. What is recorded runs in the order of recording."""

    def __init__(self, threads: int) -> None:
        self.team = Team(threads)
        self.pool = Pool()
        self.workspace = Workspace()
        self._tapes_pool = Pool()
        """Lends what is between on tapes, of which one runs at a time."""
        self._pending = array("q")
        self._kept: list[Any] = []
        self._tape = Memory(_LINE * _TAPE)
        self._written = 0
        self.runs = 0
        """Goes up whenever what was recorded has been carried out."""
        self._asked = 0
        """Goes up whenever somebody wants that, to read something."""

    def call(self, call: Call, *kept: object) -> None:
        """Record one call. `kept` is what must not go before it has run; a pool's buffers may, and are let go."""
        place = _LINE * self._written
        if place == len(self._tape.bytes):
            # Running what there is would end a recording, and large models have more calls than that.
            self._kept.append(self._tape)
            self._tape, self._written, place = Memory(_LINE * _TAPE), 0, 0
        self._tape.bytes[place : place + _LINE] = np.frombuffer(call.words(), np.uint8)
        self._written += 1
        self._pending.append(self._tape.address + place)
        self._kept.extend(each for each in kept if not isinstance(each, Buffer))

    def calls(self, lines: Lines, *kept: object) -> None:
        """Record prepared calls."""
        self._pending.extend(lines.addresses)
        self._kept.append(lines)
        self._kept.extend(each for each in kept if not isinstance(each, Buffer))

    def lines(self, words: NDArray[np.int64], *kept: object) -> None:
        """Record calls whose lines are `[n, WORDS]`."""
        self._pending.extend((int(words.ctypes.data) + _LINE * np.arange(len(words))).tolist())
        self._kept.append(words)
        self._kept.extend(each for each in kept if not isinstance(each, Buffer))

    def run(self) -> None:
        """Carry out what is recorded."""
        self._asked += 1
        if self._pending:
            self.team.run(self._pending)
            self._forget()
            self.runs += 1

    def record(self, compute: Callable[[], R]) -> tuple[R, Lines | None]:
        """What `compute` records, apart from everything else; it is not recorded then.

        None when it cannot be taken apart, for something was read meanwhile or a block has moved: it is recorded.
        """
        self.run()
        before = (self._asked, self.workspace.generation)
        pool, self.pool = self.pool, self._tapes_pool
        try:
            result = compute()
        finally:
            self.pool = pool
        if before != (self._asked, self.workspace.generation):
            return result, None
        lines = Lines((ctypes.string_at(address, _LINE) for address in self._pending), *self._kept)
        self._forget()
        return result, lines

    def _forget(self) -> None:
        """Nothing is recorded."""
        self._pending = array("q")
        self._kept.clear()
        self.workspace.retired.clear()
        self._written = 0

    def close(self) -> None:
        """Send the threads home."""
        self._forget()
        self.team.close()

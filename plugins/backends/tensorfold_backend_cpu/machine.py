"""Calls are recorded while a decoder runs, and carried out together: one call from Python computes a whole Step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tensorfold_backend_cpu.kernels.calls import WORDS, Call
from tensorfold_backend_cpu.memory import Buffer, Memory, Pool, Workspace
from tensorfold_backend_cpu.threads import Team

__all__ = ["Lines", "Machine"]

_LINE: Final = 8 * WORDS
_TAPE: Final = 2048
"""Lines of the tape on which single calls are written; a full tape is run."""


class Lines:
    """Calls that are recorded again and again."""

    def __init__(self, calls: Sequence[Call], *kept: object) -> None:
        """`kept` is what the calls refer to."""
        self._kept = kept
        self._memory = Memory(_LINE * len(calls))
        self._memory.bytes[:] = np.frombuffer(b"".join(call.words() for call in calls), np.uint8)
        self.addresses = [self._memory.address + _LINE * number for number in range(len(calls))]


class Machine:
    """The one recorder of a session, used by one thread. What is recorded runs in the order of recording."""

    def __init__(self, threads: int) -> None:
        self.team = Team(threads)
        self.pool = Pool()
        self.workspace = Workspace()
        self._pending: list[int] = []
        self._kept: list[Any] = []
        self._tape = Memory(_LINE * _TAPE)
        self._written = 0
        self.runs = 0
        """Goes up whenever what was recorded has been carried out."""

    def call(self, call: Call, *kept: object) -> None:
        """Record one call. `kept` is what must not go before it has run; a pool's buffers may, and are let go."""
        if self._written == _TAPE:
            self.run()
        place = _LINE * self._written
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
        if self._pending:
            pending, self._pending = self._pending, []
            self.team.run(pending)
            self._kept.clear()
            self.workspace.retired.clear()
            self._written = 0
            self.runs += 1

    def close(self) -> None:
        """Send the threads home."""
        self._pending.clear()
        self.team.close()

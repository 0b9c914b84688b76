"""The threads that run kernels: the caller's own and its helpers, which sleep when there is nothing to do."""

from __future__ import annotations

import ctypes
import threading
from array import array
from typing import Final

import numpy as np
from numba import int64
from numpy.typing import NDArray

from tensorfold.errors import BackendError
from tensorfold_backend_cpu.kernels.running import BOARD_HEADER, BOARD_LINE, CONTROL_BYTES, help_out, run_program
from tensorfold_backend_cpu.memory import Memory

__all__ = ["SCRATCH_BYTES", "Team"]

SCRATCH_BYTES: Final = 1 << 20
"""Of each thread."""
_SLEEPERS_WORD, _LEAVE_WORD, _MUTEX_BYTE, _CONDITION_BYTE = 8, 16, 256, 512
"""Where `kernels.running` has them in the memory that threads share."""


class _Board:
    """Counters of one program. A new one may be begun on it as soon as no helper is inside."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.memory = Memory(BOARD_HEADER + BOARD_LINE * calls)
        self.inside: NDArray[np.int64] = self.memory.array(np.int64, 1)
        self.program: array[int] | None = None
        """Kept for helpers that are late."""

    @property
    def free(self) -> bool:
        return not self.inside[0]


class Team:
    """Runs programs, one at a time, on `threads` threads of which the caller is one."""

    def __init__(self, threads: int) -> None:
        """Start the helpers.

        Raises:
            BackendError: the system gives no more threads.
        """
        self.threads = threads
        self._control = Memory(CONTROL_BYTES)
        self._scratch = [Memory(SCRATCH_BYTES) for _ in range(threads)]
        self._boards: list[_Board] = []
        self._last: _Board | None = None
        library = ctypes.CDLL(None)
        for name, byte in (("pthread_mutex_init", _MUTEX_BYTE), ("pthread_cond_init", _CONDITION_BYTE)):
            if getattr(library, name)(ctypes.c_void_p(self._control.address + byte), None):
                raise BackendError(f"{name} failed: the system has no room for more threads")
        run_program.compile((int64,) * 6)  # type: ignore[attr-defined]
        help_out.compile((int64,) * 2)  # type: ignore[attr-defined]
        self._helpers = [
            threading.Thread(
                target=help_out, args=(self._control.address, each.address), name=f"kernels-{number}", daemon=True
            )
            for number, each in enumerate(self._scratch[1:], 1)
        ]
        for each in self._helpers:
            each.start()

    @property
    def sleeping(self) -> int:
        """Helpers that wait for work without using a processor."""
        return int(self._control.array(np.int64, CONTROL_BYTES // 8)[_SLEEPERS_WORD])

    def run(self, calls: array[int]) -> None:
        """Run calls, given by the addresses of their lines, one after the other; returns when all are done."""
        board = self._board(len(calls))
        board.program = calls
        run_program(
            *calls.buffer_info(),
            board.memory.address,
            self._control.address,
            self._scratch[0].address,
            len(self._helpers),
        )
        self._last = board

    def close(self) -> None:
        """Send the helpers home."""
        if self._helpers:
            self._control.array(np.int64, CONTROL_BYTES // 8)[_LEAVE_WORD] = 1
            # An empty program wakes them.
            self.run(array("q"))
            for each in self._helpers:
                each.join()
            self._helpers.clear()

    def _board(self, calls: int) -> _Board:
        """One that no helper is on: neither still, nor about to be, as on the last one."""
        for each in self._boards:
            if each is not self._last and each.calls >= calls and each.free:
                return each
        self._boards = [each for each in self._boards if each is self._last or not each.free]
        self._boards.append(_Board(max(1024, 2 * calls)))
        return self._boards[-1]

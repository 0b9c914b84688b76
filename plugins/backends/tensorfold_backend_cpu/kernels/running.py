"""How threads go through a list of calls together.

Every call has a counter of items taken and one of items done. A thread takes items until there are none left, waits until
all are done, and goes on to the next call. Nobody waits for a thread that has taken nothing, so one that the system has
put to sleep, or that comes late, holds nobody up.

A program's counters lie in a board of their own, with all that a late thread may still read: the calls themselves are
only looked at by whoever holds one of their items, and then the call is not over.
"""

from __future__ import annotations

import time
from typing import Any, Final

from numba import types

from tensorfold_backend_cpu.kernels.atomics import (
    broadcast,
    fetch_add,
    lock,
    pause,
    read,
    read_clock,
    unlock,
    wait,
    write,
    yield_processor,
)
from tensorfold_backend_cpu.kernels.compiling import called_from_python, kernel, word
from tensorfold_backend_cpu.kernels.emitter import I64, Emitter, operation
from tensorfold_backend_cpu.kernels.simd import field, set_field
from tensorfold_backend_cpu.kernels.untyped import ir

__all__ = ["BOARD_HEADER", "BOARD_LINE", "CONTROL_BYTES", "help_out", "invoke", "run_program"]

BOARD_HEADER: Final = 128
"""Bytes at the start of a board: how many helpers are inside, and the number of calls."""
BOARD_LINE: Final = 128
"""Bytes of a call on a board: items taken, items, and on another cache line items done."""

CONTROL_BYTES: Final = 1024
"""Of the memory that the threads of a team share. At 0 the number of the program, at 64 how many helpers sleep, at 128
whether to leave, at 192 the board; a mutex at 256, a condition at 512."""
_SLEEPERS, _LEAVE, _BOARD, _MUTEX, _CONDITION = 64, 128, 192, 256, 512

_SPIN_NANOSECONDS: Final = 200_000
"""A helper without work watches for more so long before it sleeps."""
_PATIENCE: Final = 4000
"""Turns of a loop (a few dozen microseconds) after which a thread lets others run while it waits for an item."""
_CLOCK: Final = time.CLOCK_MONOTONIC


@operation(types.void, types.int64, types.int64, types.int64, types.int64)
def invoke(e: Emitter, address: Any, call: Any, item: Any, scratch: Any) -> None:
    """Run the kernel at an address: one item of a call."""
    kind = ir.FunctionType(ir.VoidType(), [I64, I64, I64])
    e.builder.call(e.builder.inttoptr(address, kind.as_pointer()), [call, item, scratch])


@kernel
def _now(memory: int) -> int:
    """Nanoseconds of a clock that only goes forward; `memory` is overwritten."""
    read_clock(types.int32(_CLOCK), memory)
    nanoseconds: int = field(memory, 0) * 1_000_000_000 + field(memory, 1)
    return nanoseconds


@kernel
def _work(program: int, board: int, count: int, scratch: int) -> None:
    """Take part in a program until its last call is done."""
    for number in range(count):
        line = board + BOARD_HEADER + number * BOARD_LINE
        items = read(line + 8)
        if read(line + 64) == items:
            continue
        item = fetch_add(line, word(1))
        while item < items:
            call = field(program, number)
            invoke(field(call, 0), call, item, scratch)
            fetch_add(line + 64, word(1))
            item = fetch_add(line, word(1))
        turns = 0
        while read(line + 64) != items:
            pause()
            turns += 1
            if turns > _PATIENCE:
                yield_processor()


@called_from_python
def run_program(program: int, count: int, board: int, control: int, scratch: int, helpers: int) -> None:
    """Run `count` calls, whose addresses lie at `program`, on this thread and the team's helpers.

    Args:
        board: not in use by any helper.
        control: the team's shared memory.
        scratch: this thread's own.
        helpers: how many there are.
    """
    for number in range(count):
        call = field(program, number)
        line = board + BOARD_HEADER + number * BOARD_LINE
        elsewhere = field(call, 2)
        set_field(line, 0, 0)
        set_field(line, 1, field(elsewhere, 0) if elsewhere else field(call, 1))
        set_field(line, 8, 0)
    set_field(board, 1, count)
    set_field(board, 2, program)
    if helpers:
        write(control + _BOARD, board)
        fetch_add(control, word(1))
        if read(control + _SLEEPERS) > 0:
            lock(control + _MUTEX)
            broadcast(control + _CONDITION)
            unlock(control + _MUTEX)
    _work(program, board, count, scratch)


@kernel
def _next_program(control: int, seen: int, memory: int) -> None:
    """Return when the number of the program is no longer `seen`."""
    since = _now(memory)
    turns = 0
    while read(control) == seen:
        pause()
        turns += 1
        if turns % 64 == 0 and _now(memory) - since > _SPIN_NANOSECONDS:
            lock(control + _MUTEX)
            fetch_add(control + _SLEEPERS, word(1))
            while read(control) == seen:
                wait(control + _CONDITION, control + _MUTEX)
            fetch_add(control + _SLEEPERS, word(-1))
            unlock(control + _MUTEX)


@called_from_python
def help_out(control: int, scratch: int) -> None:
    """A helper's life: it takes part in every program until it is told to leave. Its scratch begins with a clock's."""
    seen = word(0)
    while True:
        _next_program(control, seen, scratch)
        seen = read(control)
        if read(control + _LEAVE):
            return
        board = read(control + _BOARD)
        fetch_add(board, word(1))
        # The board is this program's only if the number did not change before it was entered.
        if read(control) == seen:
            _work(field(board, 2), board, field(board, 1), scratch)
        fetch_add(board, word(-1))

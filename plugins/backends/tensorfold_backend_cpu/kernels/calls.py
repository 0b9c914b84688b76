"""How a call of a kernel lies in memory: a line of 64-bit words, written by Python and read by every thread.

Word 0 is the kernel's address, word 1 how many items of work there are, and the fields of its dataclass follow. An
address is a word, and so is a float, as the bits of a double.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, Final, cast

from tensorfold_backend_cpu.kernels.compiling import Entry, Kernel

__all__ = ["FIRST", "WORDS", "Call", "done_by", "numbers"]

WORDS: Final = 40
"""Of a line."""
FIRST: Final = 3
"""The word of a call's first field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a kernel over rows. Its items of work may be done in any order, by any thread."""

    kernel: ClassVar[Kernel]
    """Set by `done_by`."""
    items: int
    """How many pieces the work has."""
    items_at: int = 0
    """Address of a word that holds it instead, for what only a Step knows; 0: `items` is right."""

    def chosen(self) -> Kernel:
        """The kernel of this call; kinds of call with several override it."""
        return self.kernel

    def words(self) -> bytes:
        """The line."""
        line, values = _layout(cast("Any", type(self)))
        return line.pack(self.chosen().address, *values(self))


def numbers(kind: type[Call]) -> tuple[int, ...]:
    """Where in a line the fields of a call lie, in their order."""
    return tuple(range(FIRST, 1 + len(dataclasses.fields(kind))))


def done_by(kind: type[Call]) -> Callable[[Entry], Kernel]:
    """Make a function the kernel of a kind of call."""

    def made(function: Entry) -> Kernel:
        kind.kernel = Kernel(function)
        return kind.kernel

    return made


@cache
def _layout(kind: type[Call]) -> tuple[struct.Struct, Callable[[Call], tuple[int | float, ...]]]:
    """The line of a kind of call, and its fields.

    PERF: a step of a new width writes hundreds of lines.
    """
    fields = dataclasses.fields(kind)
    words = "".join("d" if each.type == "float" else "q" for each in fields)
    line = struct.Struct(f"=q{words}{8 * (WORDS - 1 - len(fields))}x")
    return line, attrgetter(*(each.name for each in fields))

"""How a call of a kernel lies in memory: a line of 64-bit words, written by Python and read by every thread.

Word 0 is the kernel's address, word 1 how many items of work there are, and the fields of its dataclass follow. An
address is a word, and so is a float, as the bits of a double.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

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
        values = [getattr(self, each.name) for each in dataclasses.fields(self)]
        line = [self.chosen().address, *(_bits(value) if isinstance(value, float) else int(value) for value in values)]
        return struct.pack(f"={WORDS}q", *line, *[0] * (WORDS - len(line)))


def numbers(kind: type[Call]) -> tuple[int, ...]:
    """Where in a line the fields of a call lie, in their order."""
    return tuple(range(FIRST, 1 + len(dataclasses.fields(kind))))


def done_by(kind: type[Call]) -> Callable[[Entry], Kernel]:
    """Make a function the kernel of a kind of call."""

    def made(function: Entry) -> Kernel:
        kind.kernel = Kernel(function)
        return kind.kernel

    return made


def _bits(value: float) -> int:
    (bits,) = struct.unpack("=q", struct.pack("=d", value))
    return int(bits)

"""Memory with an address: aligned blocks, and a pool of them for activations."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Buffer", "Memory", "Pool", "Workspace"]

T = TypeVar("T", bound=np.generic)

_LINE: Final = 64
"""Bytes of a cache line, to which every block is aligned."""
_LARGE: Final = 1 << 19
"""Bytes from which on a new block is dear: the system fills each of its pages with zeros when it is first written."""


class Memory:
    """A block of zeros that stays where it is."""

    __slots__ = ("_whole", "address", "bytes")

    def __init__(self, size: int) -> None:
        self._whole: NDArray[np.uint8] = np.zeros(size + _LINE, np.uint8)
        begin = int(self._whole.ctypes.data)
        self.address = (begin + _LINE - 1) // _LINE * _LINE
        self.bytes = self._whole[self.address - begin :][:size]
        """The block itself."""

    def array(self, kind: type[T], *shape: int) -> NDArray[T]:
        """Its beginning as an array."""
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        return self.bytes[:size].view(kind).reshape(shape)


class Buffer:
    """Memory lent by a pool, which has it back when nobody refers to this any more."""

    __slots__ = ("_pool", "memory")

    def __init__(self, pool: Pool, memory: Memory) -> None:
        self._pool = pool
        self.memory = memory

    def __del__(self) -> None:
        self._pool.give_back(self.memory)


class Pool:
    """Blocks for activations, used again and again.

    A block may be lent again while calls that use it wait to be run: the new owner's calls run after them.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[Memory]] = {}

    def take(self, size: int) -> Buffer:
        """At least so many bytes, with whatever is in them."""
        rounded = _rounded(size)
        free = self._free.get(rounded) or (self._larger(rounded) if rounded >= _LARGE else None)
        return Buffer(self, free.pop() if free else Memory(rounded))

    def _larger(self, size: int) -> list[Memory] | None:
        """The smallest free blocks of at least so many bytes."""
        fitting = [each for each, free in self._free.items() if each >= size and free]
        return self._free[min(fitting)] if fitting else None

    def give_back(self, memory: Memory) -> None:
        """For `Buffer`."""
        self._free.setdefault(len(memory.bytes), []).append(memory)


def _rounded(size: int) -> int:
    """Up to the next quarter of a power of two, or to the power when that is much, so that few sizes occur.

    What is never written to takes no memory.
    """
    if size > _LARGE:
        return 1 << (size - 1).bit_length()
    quarter = max(64, 1 << max(0, size - 1).bit_length() >> 3)
    return (size + quarter - 1) // quarter * quarter


class Workspace:
    """Scratch blocks by name, shared by all layers: what is in one is used up by the calls that follow."""

    def __init__(self) -> None:
        self._blocks: dict[Hashable, Memory] = {}
        self.retired: list[Memory] = []
        """Blocks that were too small; what is recorded may still use them, so they go when it has run."""
        self.generation = 0
        """Changes when a block moves, and with it addresses in calls that were prepared."""
        self.prepared: dict[Hashable, Any] = {}
        """What was made of these addresses, by what it is for; gone when a block moves."""

    def address(self, name: Hashable, size: int) -> int:
        """Of at least so many bytes."""
        found = self._blocks.get(name)
        if found is None or len(found.bytes) < size:
            if found is not None:
                self.retired.append(found)
            found = self._blocks[name] = Memory(_rounded(size))
            self.generation += 1
            self.prepared.clear()
        return found.address

"""How kernels are compiled: without Python objects, so that they run while another thread holds the interpreter.

A kernel is compiled when its address is first asked for, and kept on disk (`cache`). Kernels are called by address, so
a model costs the compilation of those that it needs and no others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, TypeAlias, TypeVar, cast

import numba
from numba import types

from tensorfold_backend_cpu.kernels.cache import prepare

__all__ = ["Entry", "Kernel", "called_from_python", "kernel", "real", "word"]

# Decorators below ask where compiled kernels are kept when a kernel's module is imported.
prepare()

F = TypeVar("F", bound=Callable[..., Any])

Entry: TypeAlias = Callable[[int, int, int], None]
"""`f(call, item, scratch)`: does one item of the work that the line at address `call` describes. `scratch` is memory
of the thread's own, whose contents nobody relies on."""

real: Final = cast("Callable[[float], float]", numba.float32)
"""A float of single precision: what kernels compute with."""
word: Final = cast("Callable[[int], int]", numba.int64)
"""A 64-bit integer."""

_ENTRY: Final = types.void(types.int64, types.int64, types.int64)


def kernel(function: F) -> F:
    """A function for other kernels, compiled into each of them."""
    return cast("F", numba.njit(nogil=True, error_model="numpy", boundscheck=False)(function))


def called_from_python(function: F) -> F:
    """A function that Python calls itself."""
    return cast("F", numba.njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)(function))


class Kernel:
    """A kernel with an address of its own."""

    def __init__(self, function: Entry) -> None:
        self.function = function

    @property
    def name(self) -> str:
        """Of the function."""
        return self.function.__name__

    @property
    def compiled(self) -> bool:
        """Whether its address is known in this process."""
        return "address" in self.__dict__

    @cached_property
    def address(self) -> int:
        """Of the machine code, which is compiled or read from disk now."""
        compiler: Any = numba.cfunc
        return int(compiler(_ENTRY, cache=True, error_model="numpy", boundscheck=False)(self.function).address)

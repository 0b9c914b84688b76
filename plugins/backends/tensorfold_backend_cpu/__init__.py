"""Plain processors, x86-64 and arm64: kernels compiled by numba, no compiler and no torch needed.

Importing this imports no numba; a session does.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold import hookimpl
from tensorfold.contracts.backend import Backend
from tensorfold.contracts.commands import Command
from tensorfold.contracts.examples import Example
from tensorfold_backend_cpu.commands import kernels_command
from tensorfold_backend_cpu.probe import CpuBackend

__all__ = ["CpuBackend", "tensorfold_backends", "tensorfold_commands", "tensorfold_examples"]


@hookimpl
def tensorfold_backends() -> Iterable[Backend]:
    """One backend."""
    yield CpuBackend()


@hookimpl
def tensorfold_commands() -> Iterable[Command]:
    """`tensorfold bench kernels`."""
    yield kernels_command()


@hookimpl
def tensorfold_examples() -> Iterable[Example]:
    """What `tensorfold check` holds it to."""
    from tensorfold_backend_cpu.examples import EXAMPLE

    yield EXAMPLE

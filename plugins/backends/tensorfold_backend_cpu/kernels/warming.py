"""Compiling kernels before the first request needs them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from tensorfold.compute.host import usable_processors
from tensorfold_backend_cpu.kernels.arithmetic import Apply, Combine, Mix
from tensorfold_backend_cpu.kernels.attention import ATTEND_KERNELS
from tensorfold_backend_cpu.kernels.cache import folder
from tensorfold_backend_cpu.kernels.choosing import Choose
from tensorfold_backend_cpu.kernels.compiling import Kernel
from tensorfold_backend_cpu.kernels.convolution import ShortConv
from tensorfold_backend_cpu.kernels.elementwise import Activate, Add, Gather, Glu, Scale
from tensorfold_backend_cpu.kernels.embedding import EmbedAffine, EmbedFloats
from tensorfold_backend_cpu.kernels.gumbel import Contend
from tensorfold_backend_cpu.kernels.joining import Join
from tensorfold_backend_cpu.kernels.mixtures import Arrange, Grouped
from tensorfold_backend_cpu.kernels.norm import GatedNorm, RmsNorm
from tensorfold_backend_cpu.kernels.positions import PreparedAttention, Rotate, WriteKeys
from tensorfold_backend_cpu.kernels.quantized import Quantize
from tensorfold_backend_cpu.kernels.recurrent import GatedDelta, StateSpace
from tensorfold_backend_cpu.kernels.untyped import binding

__all__ = ["compile_kernels", "compile_mixtures", "compile_recurrences", "make_attention"]

_CALLS: Final = (
    Activate,
    Add,
    Contend,
    EmbedAffine,
    EmbedFloats,
    Gather,
    Glu,
    Join,
    PreparedAttention,
    Quantize,
    RmsNorm,
    Rotate,
    Scale,
    WriteKeys,
)
_PATIENCE: Final = 120.0
"""Seconds to wait for the helper; then its kernels are compiled here."""


def compile_kernels(*, half: bool) -> None:
    """All kernels but those for a kind of matrix, which are made when such a matrix is packed.

    The first start of a version takes some seconds, and says so; later ones read the kernels from disk.

    Args:
        half: whether pages hold half floats.
    """
    attention, others = ATTEND_KERNELS[half], [each.kernel for each in _CALLS]
    known = folder() / f"{binding.get_host_cpu_name()}-{half:d}.compiled"
    if known.exists():
        _make([*others, attention])
        return
    log = structlog.get_logger()
    begun = time.monotonic()
    log.info("compiling kernels, once for this version and processor", kernels=len(others) + 1, folder=str(folder()))
    helper = _helper(half) if usable_processors() > 1 else None
    _make(others)
    log.info("kernels compiled", done=len(others), kernels=len(others) + 1)
    if helper is not None:
        _finished(helper)
    _make([attention])
    log.info("all kernels compiled", seconds=round(time.monotonic() - begun, 1))
    # Where nothing can be kept, every start is a first one.
    with suppress(OSError):
        known.parent.mkdir(parents=True, exist_ok=True)
        known.touch()


def compile_recurrences() -> None:
    """Those that only some models need."""
    _make([each.kernel for each in (Apply, Combine, GatedDelta, GatedNorm, Mix, ShortConv, StateSpace)])


def compile_mixtures() -> None:
    """Those that only mixtures of experts need."""
    _make([each.kernel for each in (Arrange, Choose, Grouped, Mix)])


def make_attention(half: bool) -> None:
    """The kernel that takes longest; the helper's program."""
    _make([ATTEND_KERNELS[half]])


def _make(kernels: Sequence[Kernel]) -> None:
    for each in kernels:
        # Asking for the address compiles it, or reads it from disk.
        _ = each.address


def _helper(half: bool) -> subprocess.Popen[bytes] | None:
    """Another process that compiles attention meanwhile, for compiling is the work of one thread."""
    program = f"from {__name__} import make_attention; make_attention({half})"
    try:
        return subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None


def _finished(helper: subprocess.Popen[bytes]) -> None:
    """Wait for it. Whether it did its work does not matter: what it did not leave on disk is compiled here."""
    try:
        helper.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        helper.kill()
        helper.wait()

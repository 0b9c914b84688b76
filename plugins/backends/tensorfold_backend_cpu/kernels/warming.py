"""Compiling kernels before the first request needs them."""

from __future__ import annotations

import time

import structlog

from tensorfold_backend_cpu.kernels.attention import ATTEND_KERNELS
from tensorfold_backend_cpu.kernels.cache import folder
from tensorfold_backend_cpu.kernels.compiling import Kernel
from tensorfold_backend_cpu.kernels.elementwise import Activate, Add, Gather, Glu
from tensorfold_backend_cpu.kernels.embedding import EmbedAffine, EmbedFloats
from tensorfold_backend_cpu.kernels.gumbel import Contend
from tensorfold_backend_cpu.kernels.joining import Join
from tensorfold_backend_cpu.kernels.norm import RmsNorm
from tensorfold_backend_cpu.kernels.positions import PreparedAttention, Rotate, WriteKeys
from tensorfold_backend_cpu.kernels.quantized import Quantize
from tensorfold_backend_cpu.kernels.untyped import binding

__all__ = ["compile_kernels"]


def compile_kernels(*, half: bool) -> None:
    """All kernels but those for a kind of matrix, which are made when such a matrix is packed.

    The first start of a version takes some seconds, and says so; later ones read the kernels from disk.

    Args:
        half: whether pages hold half floats.
    """
    calls = (
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
        WriteKeys,
    )
    _compile((ATTEND_KERNELS[half], *(each.kernel for each in calls)), f"{binding.get_host_cpu_name()}-{half:d}")


def _compile(kernels: tuple[Kernel, ...], name: str) -> None:
    known = folder() / f"{name}.compiled"
    first = not known.exists()
    log = structlog.get_logger()
    begun = time.monotonic()
    if first:
        log.info("compiling kernels, once for this version and processor", kernels=len(kernels), folder=str(folder()))
    for each in kernels:
        # Asking for the address compiles it, or reads it from disk.
        _ = each.address
    if first:
        log.info("kernels compiled", seconds=round(time.monotonic() - begun, 1))
        known.parent.mkdir(parents=True, exist_ok=True)
        known.touch()

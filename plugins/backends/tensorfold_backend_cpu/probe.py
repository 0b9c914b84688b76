"""Whether the processors of this machine will do, and what they are opened with. numba is imported when they are."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast, get_args

from tensorfold.compute.host import usable_processors
from tensorfold.contracts.backend import BackendSettings, Suitability
from tensorfold.errors import ConfigError, PluginUnavailable

if TYPE_CHECKING:
    from tensorfold_backend_cpu.session import CpuSession

__all__ = ["CpuBackend"]


@dataclass(frozen=True, slots=True)
class CpuBackend:
    """Computes with kernels of its own, on threads of its own."""

    name: str = "cpu"

    def probe(self) -> Suitability:
        """The best of what needs no GPU.

        Raises:
            PluginUnavailable: numba is not installed, or the system has no POSIX threads.
        """
        _need_numba()
        return Suitability(10, _in_words(usable_processors()))

    def open(self, settings: BackendSettings) -> CpuSession:
        """A session on as many threads as asked for, or as this process may use.

        Raises:
            PluginUnavailable: as in `probe`.
            ConfigError: another device, a type other than float32, or an unknown treatment of weights.
        """
        _need_numba()
        if settings.device not in (None, "cpu"):
            raise ConfigError(f"device is {settings.device!r}, and the cpu backend runs on cpu alone")
        if settings.dtype not in (None, "float32"):
            raise ConfigError(f"dtype is {settings.dtype!r}, and the cpu backend computes in float32")
        if settings.threads is not None and settings.threads < 1:
            raise ConfigError(f"threads is {settings.threads}, and must be at least 1")
        from tensorfold_backend_cpu.packing import WeightsMode
        from tensorfold_backend_cpu.session import CpuSession

        mode = settings.weights or "auto"
        if mode not in get_args(WeightsMode):
            raise ConfigError(f"weights is {mode!r}, and must be one of {', '.join(get_args(WeightsMode))}")
        return CpuSession(settings.threads or usable_processors(), cast("WeightsMode", mode))


def _need_numba() -> None:
    if sys.platform == "win32":
        raise PluginUnavailable("needs POSIX threads, which Windows has not: use --backend torch")
    if importlib.util.find_spec("numba") is None:
        raise PluginUnavailable("needs numba: pip install numba")


def _in_words(count: int) -> str:
    return f"{count} CPU thread{'s' if count > 1 else ''}"

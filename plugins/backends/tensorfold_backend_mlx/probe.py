"""Whether MLX suits this machine, and what it is opened with. Nothing here imports mlx before it has to."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorfold.contracts.backend import BackendSettings, Suitability
from tensorfold.errors import ConfigError, PluginUnavailable

if TYPE_CHECKING:
    import mlx.core as mx

    from tensorfold_backend_mlx.session import MlxSession

__all__ = ["MlxBackend"]

_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class MlxBackend:
    """Computes with MLX."""

    name: str = "mlx"

    def probe(self) -> Suitability:
        """Metal is what MLX is made for; on a CPU it is right but slow, and runs only when it is asked for.

        Raises:
            PluginUnavailable: mlx is not installed, or not for this machine.
        """
        _need_mlx()
        # Importing mlx takes a while, so only a machine that may have Metal is asked further.
        if sys.platform == "darwin" and platform.machine() == "arm64":
            _load(compiles=True)
            import mlx.core as mx

            if mx.metal.is_available():
                return Suitability(60, str(mx.device_info(mx.gpu)["device_name"]))
        return Suitability(1, "CPU, for tests")

    def open(self, settings: BackendSettings) -> MlxSession:
        """A session on the device that is asked for, or on the best one.

        Raises:
            PluginUnavailable: mlx is not installed, or not for this machine.
            ConfigError: the machine has no such device, or MLX has no such setting.
        """
        _need_mlx()
        if settings.threads is not None and settings.threads < 1:
            raise ConfigError(f"threads is {settings.threads}, and must be at least 1")
        device = _device(settings.device)
        dtype = _dtype(settings, device)
        if settings.weights not in (None, "auto", "exact"):
            raise ConfigError(
                f"weights is {settings.weights!r}, and the mlx backend keeps them as the checkpoint has them ('auto')"
                " or computes with floats throughout ('exact'): quantize the checkpoint instead"
            )
        from tensorfold_backend_mlx.session import MlxSession

        return MlxSession(device, dtype, keep_codes=settings.weights != "exact")


def _need_mlx() -> None:
    if importlib.util.find_spec("mlx") is None:
        raise PluginUnavailable("needs mlx: pip install 'tensorfold[mlx]'")


def _load(*, compiles: bool) -> None:
    """Import mlx, with the setting that it reads as it is imported.

    Raises:
        PluginUnavailable: on Linux the package is of no use without the library of a device, a package of its own.
    """
    if not compiles:
        # For a CPU it would call the system's C++ compiler for every chain (measured: 20 s for twenty short ones).
        os.environ.setdefault("MLX_DISABLE_COMPILE", "1")
    try:
        importlib.import_module("mlx.core")
    except ImportError as error:
        raise PluginUnavailable(
            f"mlx is installed, but not for this machine ({error}): pip install 'tensorfold[mlx]'"
        ) from error


def _device(asked: str | None) -> mx.Device:
    """The device of this name."""
    _load(compiles=asked != "cpu" and sys.platform == "darwin")
    import mlx.core as mx

    metal = mx.metal.is_available()
    match asked:
        case "cpu":
            return mx.Device(mx.cpu)
        case None:
            return mx.Device(mx.gpu if metal else mx.cpu)
        case "gpu" | "metal" if metal:
            return mx.Device(mx.gpu)
        case "gpu" | "metal":
            raise ConfigError(f"device is {asked!r}, and this MLX finds no Metal: use --device cpu")
        case _:
            raise ConfigError(f"device is {asked!r}, and the mlx backend runs on gpu (or metal) and on cpu")


def _dtype(settings: BackendSettings, device: mx.Device) -> mx.Dtype:
    """The type of activations: float32 on a CPU, whose narrow products are slow; the checkpoint's own on a GPU."""
    import mlx.core as mx

    asked = settings.dtype
    if asked is None:
        if device.type == mx.DeviceType.cpu:
            return mx.float32
        return mx.float16 if settings.checkpoint_dtype == "float16" else mx.bfloat16
    if asked not in _DTYPES:
        raise ConfigError(f"dtype is {asked!r}, and the mlx backend computes in {', '.join(_DTYPES)}")
    dtypes = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
    return dtypes[asked]

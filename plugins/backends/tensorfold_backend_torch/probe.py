"""Whether torch suits this machine, and what it is opened with. Nothing here imports torch before it has to."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tensorfold.compute.host import quiet_threads, usable_processors
from tensorfold.contracts.backend import BackendSettings, Suitability
from tensorfold.errors import ConfigError, PluginUnavailable

if TYPE_CHECKING:
    import torch

    from tensorfold_backend_torch.session import TorchSession

__all__ = ["TorchBackend"]

_DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/kfd"))
"""What a driver for a GPU leaves in the file system: NVIDIA's, Windows' under Linux, AMD's."""
_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class TorchBackend:
    """Computes with PyTorch."""

    name: str = "torch"

    def probe(self) -> Suitability:
        """A GPU that torch can use is the best device there is; a CPU only serves when nothing made for it does.

        Raises:
            PluginUnavailable: torch is not installed.
        """
        _need_torch()
        # Importing torch takes seconds, so a machine without a driver is not asked any further.
        if any(each.exists() for each in _DRIVERS):
            quiet_threads()
            import torch

            if torch.cuda.is_available():
                return Suitability(50, torch.cuda.get_device_name())
        return Suitability(5, _threads_in_words(usable_processors()))

    def open(self, settings: BackendSettings) -> TorchSession:
        """A session on the device that is asked for, or on the best one.

        Raises:
            PluginUnavailable: torch is not installed.
            ConfigError: the machine has no such device, the device computes in no such type, or weights would have to be
                quantized.
        """
        _need_torch()
        if settings.threads is not None and settings.threads < 1:
            raise ConfigError(f"threads is {settings.threads}, and must be at least 1")
        if settings.weights not in (None, "auto", "exact"):
            raise ConfigError(
                f"weights is {settings.weights!r}, and the torch backend does not quantize: use auto, exact or"
                " --backend cpu"
            )
        quiet_threads()
        import torch

        from tensorfold_backend_torch.session import TorchSession

        device = _device(settings.device)
        dtype = _dtype(settings.dtype, device)
        if device.type == "cpu":
            torch.set_num_threads(settings.threads or usable_processors())
        return TorchSession(device, dtype)


def _need_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise PluginUnavailable("needs torch: pip install 'tensorfold[torch]'")


def _threads_in_words(count: int) -> str:
    return f"{count} CPU thread{'s' if count > 1 else ''}"


def _device(asked: str | None) -> torch.device:
    """The device of this name."""
    import torch

    if asked is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = asked.partition(":")
    if kind == "cpu" and not number:
        return torch.device("cpu")
    if kind != "cuda" or (number and not number.isdigit()):
        raise ConfigError(f"device is {asked!r}, and the torch backend runs on cpu, cuda or cuda:NUMBER")
    if not torch.cuda.is_available():
        raise ConfigError(f"device is {asked!r}, and this torch finds no GPU: use --device cpu")
    if int(number or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device is {asked!r}, and this machine has {torch.cuda.device_count()} GPUs, counted from 0")
    return torch.device(asked)


def _dtype(asked: str | None, device: torch.device) -> torch.dtype:
    """The type of activations: float32 on a CPU, whose narrow products are slow or emulated; bfloat16 on a GPU."""
    import torch

    if asked is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if asked not in _DTYPES:
        raise ConfigError(f"dtype is {asked!r}, and the torch backend computes in {', '.join(_DTYPES)}")
    if asked == "float16" and device.type == "cpu":
        raise ConfigError("dtype is 'float16', and on a CPU the torch backend computes in float32 or bfloat16")
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    return dtypes[asked]

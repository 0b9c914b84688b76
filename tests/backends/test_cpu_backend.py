"""The cpu backend passes the backend contract, with quantized weights and with floats throughout."""

from __future__ import annotations

from tensorfold.contracts.backend import BackendSettings
from tensorfold.testing.backends import BackendContract
from tensorfold_backend_cpu import CpuBackend
from tensorfold_backend_cpu.examples import EXAMPLE


class TestCpuQuantized(BackendContract):
    """What is served by default."""

    backend = CpuBackend()
    settings = EXAMPLE.settings
    tolerance = EXAMPLE.tolerance


class TestCpuExact(BackendContract):
    """Floats throughout."""

    backend = CpuBackend()
    settings = BackendSettings(threads=2, weights="exact")

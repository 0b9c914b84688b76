"""The cpu backend passes the backend contract, with quantized weights and with floats throughout."""

from __future__ import annotations

from tensorfold.contracts.backend import BackendSettings
from tensorfold.testing.backends import BackendContract
from tensorfold_backend_cpu import CpuBackend


class TestCpuQuantized(BackendContract):
    """What is served by default: eight bits of weights, activations and keys, so the bound is wide; bits are strict."""

    backend = CpuBackend()
    settings = BackendSettings(threads=2)
    tolerance = 3e-2


class TestCpuExact(BackendContract):
    """Floats throughout."""

    backend = CpuBackend()
    settings = BackendSettings(threads=2, weights="exact")

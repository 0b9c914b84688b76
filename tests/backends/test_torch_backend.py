"""The torch backend on the CPU passes the backend contract, in float32 and in bfloat16."""

from __future__ import annotations

import pytest

from tensorfold.contracts.backend import BackendSettings
from tensorfold.testing.backends import BackendContract
from tensorfold_backend_torch import TorchBackend

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class TestTorchFloat32(BackendContract):
    """float32, which is what a CPU runs by default; two threads, with which libraries choose other kernels than alone."""

    backend = TorchBackend()
    settings = BackendSettings(device="cpu", threads=2)


class TestTorchBfloat16(BackendContract):
    """bfloat16: eight significant bits, so the bound is wide; the bits of rows are as strict as ever."""

    backend = TorchBackend()
    settings = BackendSettings(device="cpu", threads=1, dtype="bfloat16")
    tolerance = 3e-2

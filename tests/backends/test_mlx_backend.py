"""The MLX backend on the CPU passes the backend contract, in float32 and in bfloat16."""

from __future__ import annotations

import pytest

from tensorfold.contracts.backend import BackendSettings
from tensorfold.testing.backends import BackendContract
from tensorfold_backend_mlx import MlxBackend

pytest.importorskip("mlx.core")
pytestmark = pytest.mark.mlx


class TestMlxFloat32(BackendContract):
    """float32, which is what a CPU runs by default."""

    backend = MlxBackend()
    settings = BackendSettings(device="cpu")


@pytest.mark.slow
class TestMlxBfloat16(BackendContract):
    """bfloat16: eight significant bits, so the bound is wide; the bits of rows are as strict as ever."""

    backend = MlxBackend()
    settings = BackendSettings(device="cpu", dtype="bfloat16")
    tolerance = 3e-2

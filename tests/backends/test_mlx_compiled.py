"""What MLX compiles for a GPU is what it computes without: tried on the CPU, where a C++ compiler stands in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("mlx.core")
pytestmark = [pytest.mark.mlx, pytest.mark.slow]

PROGRAM = """
import mlx.core as mx
import numpy as np
from tensorfold_backend_mlx.elementwise import Elementwise

for act, bound in ((mx.float32, 1e-5), (mx.bfloat16, 3e-2)):
    plain, compiled = Elementwise(act, compiles=False), Elementwise(act, compiles=True)
    rng = np.random.default_rng(0)
    for rows in (1, 3, 8):
        for width in (5, 64):
            x, y = (mx.array(rng.normal(size=(rows, 2, width)).astype(np.float32)).astype(act) for _ in range(2))
            cosines, sines = (mx.array(rng.normal(size=(rows, 1, width)).astype(np.float32)) for _ in range(2))
            wide = x.astype(mx.float32), y.astype(mx.float32)
            results = [
                [
                    *(chain(x) for chain in each.activated.values()),
                    *(chain(x, y) for chain in each.gated.values()),
                    *(chain(x, y) for chain in each.opened.values()),
                    each.softplus(x),
                    each.turned(*wide, cosines, sines),
                ]
                for each in (plain, compiled)
            ]
            for one, other in zip(*results, strict=True):
                assert one.dtype == other.dtype and one.shape == other.shape
                gap = np.abs(np.array(one.astype(mx.float32)) - np.array(other.astype(mx.float32)))
                assert gap.max() <= bound, (rows, width, gap.max())
print("the same")
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_compiled_chains_compute_what_plain_ones_do() -> None:
    """For every number of rows, of any width, compiled once."""
    environment = {name: value for name, value in os.environ.items() if name != "MLX_DISABLE_COMPILE"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=280, check=True
    )
    assert done.stdout == "the same\n"

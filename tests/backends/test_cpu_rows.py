"""What families may do to the cpu backend's arrays themselves: the bits of numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tensorfold_backend_cpu.kernels.elementwise import RUN
from tensorfold_backend_cpu.machine import Machine
from tensorfold_backend_cpu.rows import Rows


@pytest.mark.parametrize("rows", [1, 5, RUN // 3 + 1, 3000])
@pytest.mark.parametrize("factor", [0.1, -3.3, 24.0, 0.0, 1 / 3, 1e-20])
def test_rows_times_a_number_are_numpys(rows: int, factor: float) -> None:
    """From the smallest floats to large ones, over the borders of vectors and of items."""
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, 3)).astype(np.float32) * np.float32(10) ** rng.integers(-30, 30, (rows, 3))
    values = x.astype(np.float32)
    machine = Machine(2)
    with np.errstate(under="ignore"):
        expected = values * factor
    assert (Rows.of(machine, values) * factor).values().tobytes() == expected.tobytes()
    assert (factor * Rows.of(machine, values)).values().tobytes() == expected.tobytes()
    machine.close()

"""What families may do to the cpu backend's arrays themselves: the bits of numpy. And functions of every element."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.contracts.backend import BackendSettings
from tensorfold_backend_cpu import CpuBackend
from tensorfold_backend_cpu.kernels.elementwise import RUN
from tensorfold_backend_cpu.machine import Machine
from tensorfold_backend_cpu.ops import CpuOps
from tensorfold_backend_cpu.rows import Rows

Floats = NDArray[np.float32]


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


SHAPES = [
    ((3, 40), (3, 40)),
    ((3, 40), (40,)),
    ((3, 40), (3, 1)),
    ((3, 40), (1, 40)),
    ((3, 40), (1,)),
    ((40,), (40,)),
    ((5, 3, 17), (17,)),
    ((5, 3, 17), (3, 1)),
    ((5, 3, 17), (3, 17)),
    ((5, 3, 17), (5, 3, 1)),
    ((5, 3, 17), (5, 3, 17)),
    ((1, 3, 17), (1, 3, 1)),
    ((1, 1), (1, 1)),
    # These go by the host.
    ((5, 3, 17), (5, 1, 17)),
    ((5, 3, 17), (5, 1, 1)),
    ((5, 1, 17), (3, 1)),
]
"""Of the larger and of the smaller, or of two that both repeat."""


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine(2)
    yield machine
    machine.close()


@pytest.mark.parametrize(("shape", "other"), SHAPES)
def test_sums_and_products_are_numpys(machine: Machine, shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    """Of arrays of one shape, and of one that repeats along the other, on either side."""
    rng = np.random.default_rng(sum(shape))
    a, b = (rng.standard_normal(each).astype(np.float32) for each in (shape, other))
    one, two = Rows.of(machine, a), Rows.of(machine, b)
    for got in (one + two, two + one):
        assert got.values().tobytes() == (a + b).tobytes() and got.shape == (a + b).shape
    for got in (one * two, two * one):
        assert got.values().tobytes() == (a * b).tobytes() and got.shape == (a * b).shape


def test_rows_with_gaps_between_them_are_met_as_they_lie(machine: Machine) -> None:
    """Parts of wider rows, on both sides."""
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((7, 60)).astype(np.float32)
    rows = Rows.of(machine, whole)
    left, right = rows.view((7, 25), 4 * 3, rows.stride), rows.view((7, 25), 4 * 31, rows.stride)
    assert (left + right).values().tobytes() == (whole[:, 3:28] + whole[:, 31:56]).tobytes()
    assert (left * right).values().tobytes() == (whole[:, 3:28] * whole[:, 31:56]).tobytes()
    narrow = rows.view((7, 1), 4 * 59, rows.stride)
    assert (left * narrow).values().tobytes() == (whole[:, 3:28] * whole[:, 59:]).tobytes()


def test_one_of_a_rows_parts_is_taken_where_it_lies(machine: Machine) -> None:
    """Nothing is read on the host for it; numbers from behind and lists of them are."""
    whole = np.random.default_rng(0).standard_normal((7, 3, 20)).astype(np.float32)
    rows = Rows.of(machine, whole) * 2.0
    before = machine.runs
    parts = [rows[:, number] for number in range(3)]
    assert machine.runs == before
    for number, part in enumerate(parts):
        assert part.shape == (7, 20)
        assert (part + part).values().tobytes() == (whole[:, number] * 4).tobytes()
    assert rows[:, -1].values().tobytes() == (whole[:, -1] * 2).tobytes()
    assert rows[:, [0, 2]].values().tobytes() == (whole[:, [0, 2]] * 2).tobytes()
    with pytest.raises(IndexError):
        _ = rows[:, 3]


FUNCTIONS: dict[str, tuple[Callable[[CpuOps, Rows], Rows], Callable[[NDArray[np.float64]], NDArray[np.float64]]]] = {
    "exp": (lambda ops, x: ops.exp(x), np.exp),
    "softplus": (lambda ops, x: ops.softplus(x), lambda x: np.logaddexp(x, 0)),
    "tanh": (lambda ops, x: ops.tanh(x), np.tanh),
    "softcap": (lambda ops, x: ops.softcap(x, 30.0), lambda x: np.tanh(x / 30.0) * 30.0),
    "maximum": (lambda ops, x: ops.maximum(x, 0.5), lambda x: np.maximum(x, 0.5)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_close_to_those_of_double_precision(name: str) -> None:
    """Over eight orders of magnitude on both sides of zero; what is not finite comes out as it should."""
    session = CpuBackend().open(BackendSettings(threads=2))
    ops = session.ops("rows", session.store({}, {}, 1), {})
    assert isinstance(ops, CpuOps)
    run, exact = FUNCTIONS[name]

    def computed(values: Floats) -> Floats:
        return np.array(run(ops, session.array(values)).values())

    sizes = np.geomspace(1e-6, 80, 3000).astype(np.float32)
    x = np.concatenate([-sizes[::-1], sizes])[None]
    expected = exact(x.astype(np.float64))
    # The hyperbolic tangent is a difference of numbers near one.
    slack = 2e-7 * (30.0 if name == "softcap" else 1.0) if name in ("tanh", "softcap") else 0.0
    assert (np.abs(computed(x) - expected) <= 5e-7 * np.abs(expected) + slack).all()
    odd = np.array([[np.nan, np.inf, -np.inf]], np.float32)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(computed(odd), exact(odd.astype(np.float64)).astype(np.float32))
    session.close()

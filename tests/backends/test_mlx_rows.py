"""On MLX every number of rows from 1 to 33 gives each row the bits that it has alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.handles import Router
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.tensors import Dense, Tensor
from tensorfold.testing.coded_tensors import quantized
from tensorfold_backend_mlx import MlxBackend

pytest.importorskip("mlx.core")
pytestmark = pytest.mark.mlx

COLUMNS, MOST = 96, 33
Run = Callable[[Ops[Any], Any], Any]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def session(request: pytest.FixtureRequest) -> Iterator[Session[Any]]:
    """MLX on the CPU, in the types that are served on one."""
    made = MlxBackend().open(BackendSettings(device="cpu", dtype=request.param))
    yield made
    made.close()


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(0, 0.5, shape).astype(np.float32)


def same_in_every_company(session: Session[Any], run: Run) -> None:
    """1 to 33 rows, the same ones first, and the last ones alone."""
    ops = session.ops("rows", session.store({}, {}, 1), {})
    x = values(MOST, COLUMNS)
    alone = np.concatenate([session.numpy(run(ops, session.array(x[row : row + 1]))) for row in range(MOST)])
    for count in range(1, MOST + 1):
        for first in {0, MOST - count}:
            got = session.numpy(run(ops, session.array(x[first : first + count])))
            assert got.tobytes() == alone[first : first + count].tobytes(), f"{count} rows from row {first}"


@pytest.mark.parametrize("rows", [1, 24, 37])
def test_products_with_floats(session: Session[Any], rows: int) -> None:
    """Also where outputs are no multiple of anything."""
    packed = session.packer.linear([Dense(values(rows, COLUMNS, seed=1), "f32")], [None])
    same_in_every_company(session, lambda ops, x: ops.linear(x, packed))


@pytest.mark.parametrize("bits", range(2, 9))
def test_products_with_codes(session: Session[Any], bits: int) -> None:
    """Of every number of bits, beside floats in one group."""
    parts: list[Tensor] = [quantized(values(24, COLUMNS, seed=1), bits, 32), Dense(values(5, COLUMNS, seed=2), "f32")]
    packed = session.packer.linear(parts, [None, Dense(values(5, seed=3), "f32")])
    same_in_every_company(session, lambda ops, x: ops.linear(x, packed))


@pytest.mark.parametrize("bits", [None, 4])
def test_experts(session: Session[Any], bits: int | None) -> None:
    """Whoever else chose the same experts."""
    count, inner = 6, 32

    def matrix(number: int, rows: int, columns: int) -> Tensor:
        dense = values(rows, columns, seed=number)
        return Dense(dense, "f32") if bits is None else quantized(dense, bits, 32)

    packed = session.packer.experts(
        [[matrix(number, inner, COLUMNS), matrix(number + 50, inner, COLUMNS)] for number in range(count)],
        [matrix(number, COLUMNS, inner) for number in range(count)],
        act="silu",
        gated=True,
        limit=None,
    )
    router = session.packer.linear([Dense(values(count, COLUMNS, seed=9), "f32")], [None])

    def run(ops: Ops[Any], x: Any) -> Any:
        ids, weights = ops.route(ops.linear(x, router), Router(2, "softmax"))
        return ops.experts(x, ids, weights, packed)

    same_in_every_company(session, run)


def test_norms_and_activations(session: Session[Any]) -> None:
    """A layer's elementwise work in one."""
    weight = session.packer.vector(values(COLUMNS, seed=5))

    def run(ops: Ops[Any], x: Any) -> Any:
        normed = ops.rms_norm(x, weight, 1e-6)
        return ops.softmax(ops.concat([ops.glu(normed, "silu"), ops.activate(normed, "gelu"), ops.softplus(x)]))

    same_in_every_company(session, run)

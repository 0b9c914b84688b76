"""On MLX every number of rows from 1 to 33 gives each row the bits that it has alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.handles import Router
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.tensors import Affine, Dense, Tensor
from tensorfold.testing.coded_tensors import quantized
from tensorfold_backend_mlx import MlxBackend

mx = pytest.importorskip("mlx.core")
matrices = pytest.importorskip("tensorfold_backend_mlx.matrices")
products = pytest.importorskip("tensorfold_backend_mlx.products")
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


@pytest.mark.parametrize("bits", [None, 4, 8])
@pytest.mark.parametrize("act", ["float32", "bfloat16", "float16"])
def test_products_as_a_gpu_gets_them(act: str, bits: int | None) -> None:
    """In tiles of 8 rows of floats, or at most 4 rows of codes, filled up and cut again."""
    dtype = getattr(mx, act)
    dense = values(24, COLUMNS, seed=1)
    tensor = Dense(dense, "f32") if bits is None else quantized(dense, bits, 32)
    matrix = (
        matrices.coded_matrix([tensor], bits, dtype, on_host=False)
        if bits is not None and isinstance(tensor, Affine)
        else matrices.float_matrix([tensor], dtype)
    )
    x = mx.array(values(MOST, COLUMNS)).astype(dtype)

    def product(rows: Any) -> Any:
        return np.array(products.in_rows(rows, matrix, on_host=False).astype(mx.float32))

    alone = np.concatenate([product(x[row : row + 1]) for row in range(MOST)])
    right = np.array(x.astype(mx.float32)) @ tensor.f32().T
    np.testing.assert_allclose(alone, right, rtol=0, atol=1e-4 if act == "float32" else 0.2)
    for count in range(1, MOST + 1):
        for first in {0, MOST - count}:
            assert product(x[first : first + count]).tobytes() == alone[first : first + count].tobytes()


@pytest.mark.parametrize(("scale", "narrow"), [(1.0, True), (1.0 + 2.0**-12, False)])
def test_scales_are_narrowed_only_where_nothing_is_lost(scale: float, narrow: bool) -> None:
    """A GPU multiplies in the type of activations by scales that it holds, and else in float32."""
    tensor = quantized(values(8, COLUMNS), 4, 32)
    changed = Affine(4, 32, tensor.codes, tensor.scales * np.float32(scale), tensor.biases)
    matrix = matrices.coded_matrix([changed], 4, mx.bfloat16, on_host=False)
    assert matrix.scales.dtype == (mx.bfloat16 if narrow else mx.float32)
    assert np.array_equal(np.array(matrix.scales.astype(mx.float32)), changed.scales)
    assert matrices.coded_matrix([tensor], 4, mx.bfloat16, on_host=True).scales.dtype == mx.float32


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

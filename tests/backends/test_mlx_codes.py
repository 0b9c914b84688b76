"""MLX multiplies by the codes that a checkpoint holds: the same values, in the memory that they take in the file."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.handles import Router
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.tensors import Affine, Dense, Tensor
from tensorfold.testing.coded_tensors import quantized
from tensorfold.testing.reference import ReferenceBackend
from tensorfold_backend_mlx import MlxBackend

mx = pytest.importorskip("mlx.core")
pytestmark = pytest.mark.mlx

ROWS, COLUMNS = 24, 128


@pytest.fixture(scope="module")
def session() -> Iterator[Session[Any]]:
    """MLX on the CPU, in float32."""
    made = MlxBackend().open(BackendSettings(device="cpu"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def reference() -> Session[Any]:
    """Which expands the codes to floats."""
    return ReferenceBackend().open(BackendSettings())


def rows_ops(session: Session[Any]) -> Ops[Any]:
    return session.ops("rows", session.store({}, {}, 1), {})


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(0, 0.2, shape).astype(np.float32)


def agree(session: Session[Any], reference: Session[Any], parts: list[Tensor], rows: int = 5) -> None:
    """A product on both, by rows and by chunks."""
    x = values(rows, parts[0].shape[1], seed=9)
    made = []
    for each in (session, reference):
        packed = each.packer.linear(parts, [None] * len(parts))
        store = each.store({}, {}, 1)
        made += [each.numpy(each.ops(kind, store, {}).linear(each.array(x), packed)) for kind in ("rows", "chunk")]
    for other in made[1:]:
        np.testing.assert_allclose(made[0], other, rtol=0, atol=2e-5)


@pytest.mark.parametrize("group", [16, 32, 64, 128])
@pytest.mark.parametrize("bits", range(2, 9))
def test_products_with_codes_are_products_with_their_values(
    session: Session[Any], reference: Session[Any], bits: int, group: int
) -> None:
    """Every number of bits that a checkpoint may have, also 7, for which MLX has none of its own, and groups of 16."""
    agree(session, reference, [quantized(values(ROWS, COLUMNS), bits, group)])


@pytest.mark.parametrize("kinds", [(4, 8), (4, None), (4, 4, 6), (None, 3, 3), (8, None, 8)])
def test_a_fused_group_may_hold_parts_of_unlike_kinds(
    session: Session[Any], reference: Session[Any], kinds: tuple[int | None, ...]
) -> None:
    """Each part in its place, whatever lies beside it."""
    parts: list[Tensor] = []
    for number, bits in enumerate(kinds):
        dense = values(8 + number, COLUMNS, seed=number)
        parts.append(Dense(dense, "f32") if bits is None else quantized(dense, bits, 32))
    agree(session, reference, parts)


@pytest.mark.parametrize(("bits", "share"), [(3, 3), (4, 4), (6, 6), (8, 8)])
def test_codes_take_the_memory_that_they_take_in_the_file(session: Session[Any], bits: int, share: int) -> None:
    """So many bits each, and two floats a group."""
    rows, columns = 512, 1024
    tensor = quantized(values(rows, columns), bits, 64)
    before = mx.get_active_memory()
    packed = session.packer.linear([tensor], [None])
    taken = mx.get_active_memory() - before
    assert packed.sizes == (rows,)
    expected = rows * columns * share // 8 + 2 * 4 * rows * columns // 64
    assert expected <= taken <= expected * 1.05


@pytest.mark.parametrize("kind", ["bf16", "f32", "4 bits", "6 bits", "4 bits in groups of 16"])
def test_packing_takes_little_more_than_what_is_packed(session: Session[Any], kind: str) -> None:
    """Parts are laid where they stay, some rows at a time: neither MLX nor numpy holds them twice."""
    parts: list[Tensor] = []
    for number in range(2):
        dense = values(6000, 1024, seed=number)
        if kind == "bf16":
            parts.append(Dense((dense.view(np.uint32) >> 16).astype(np.uint16), "bf16"))
        elif kind == "f32":
            parts.append(Dense(dense, "f32"))
        else:
            parts.append(quantized(dense, int(kind[0]), 16 if "16" in kind else 64))
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    tracemalloc.start()
    try:
        packed = session.packer.linear(parts, [None, None])
        _, on_host = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    taken = mx.get_active_memory() - before
    assert packed.sizes == (6000, 6000)
    # A slab of 2**20 elements: four bytes each in MLX, and for codes of unlike widths their bits one by one in numpy.
    assert mx.get_peak_memory() - before <= taken + (10 << 20)
    assert on_host <= 32 << 20


def test_exact_weights_are_expanded_once() -> None:
    """Asked for, products are computed with floats."""
    exact = MlxBackend().open(BackendSettings(device="cpu", weights="exact"))
    before = mx.get_active_memory()
    packed = exact.packer.linear([quantized(values(512, 1024), 4, 64)], [None])
    assert mx.get_active_memory() - before >= 512 * 1024 * 4
    assert packed.columns == 1024


@pytest.mark.parametrize("bits", [2, 4, 5, 8])
def test_a_table_of_codes_is_read_by_rows_and_is_the_tied_head(
    session: Session[Any], reference: Session[Any], bits: int
) -> None:
    """Ids of any shape; the head shares the table's memory."""
    table = quantized(values(40, 64), bits, 32)
    ids = np.asarray([[3, 0, 39], [7, 7, 1]], np.int32)
    embedding, other = session.packer.embedding([table]), reference.packer.embedding([table])
    got = session.numpy(rows_ops(session).embed(session.array(ids), embedding))
    np.testing.assert_allclose(got, table.f32()[ids], rtol=0, atol=1e-6)
    before = mx.get_active_memory()
    head = session.packer.tied(embedding)
    assert mx.get_active_memory() == before
    x = values(3, 64, seed=4)
    logits = session.numpy(rows_ops(session).linear(session.array(x), head))
    expected = reference.numpy(rows_ops(reference).linear(reference.array(x), reference.packer.tied(other)))
    np.testing.assert_allclose(logits, expected, rtol=0, atol=2e-5)


def test_a_table_in_shards_of_unlike_kinds_becomes_floats(session: Session[Any]) -> None:
    """It must be one table for a lookup."""
    coded, dense = quantized(values(8, 64), 4, 32), Dense(values(5, 64, seed=1), "f32")
    embedding = session.packer.embedding([coded, dense])
    assert embedding.shape == (13, 64)
    got = session.numpy(rows_ops(session).embed(session.array(np.arange(13, dtype=np.int32)), embedding))
    np.testing.assert_allclose(got, np.concatenate([coded.f32(), dense.f32()]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("kind", ["rows", "chunk"])
def test_experts_of_codes_compute_what_experts_of_floats_do(
    session: Session[Any], reference: Session[Any], kind: Any, mixed: bool
) -> None:
    """Gate and up in one stack; where one expert is stored otherwise, all are expanded."""
    count, hidden, inner, k = 6, 64, 32, 3

    def expert(number: int, rows: int, columns: int) -> Affine:
        return quantized(values(rows, columns, seed=number), 8 if mixed and number == 2 else 4, 32)

    up = [[expert(number, inner, hidden), expert(number, inner, hidden)] for number in range(count)]
    down = [expert(number, hidden, inner) for number in range(count)]
    x, logits = values(11, hidden, seed=7), values(11, count, seed=8)
    results = []
    for each in (session, reference):
        packed = each.packer.experts(up, down, act="silu", gated=True, limit=None)
        ops = each.ops(kind, each.store({}, {}, 1), {})
        ids, weights = ops.route(each.array(logits), Router(k, "softmax"))
        results.append(each.numpy(ops.experts(each.array(x), ids, weights, packed)))
    np.testing.assert_allclose(results[0], results[1], rtol=0, atol=1e-5)

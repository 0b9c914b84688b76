"""Weights in panels are the weights of the checkpoint, whatever they were stored as."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.contracts.backend import BackendSettings
from tensorfold.contracts.tensors import Affine, Dense
from tensorfold_backend_cpu import CpuBackend
from tensorfold_backend_cpu.handles import CpuLinear
from tensorfold_backend_cpu.panels import AffinePanels, affine_source, panels_of
from tensorfold_backend_cpu.quantizing import quantized
from tensorfold_backend_cpu.session import CpuSession

Floats = NDArray[np.float32]


@pytest.fixture(scope="module")
def session() -> Iterator[CpuSession]:
    """One for all."""
    opened = CpuBackend().open(BackendSettings(threads=2))
    yield opened
    opened.close()


def affine(
    bits: int, group: int, *, rows: int = 37, columns: int = 256, centre: int | None = None, wide: bool = False
) -> Affine:
    """A matrix with codes of every value; its scales need more than half precision if it is `wide`."""
    rng = np.random.default_rng([bits, group])
    codes = rng.integers(0, 1 << bits, (rows, columns), dtype=np.uint8)
    shape = (rows, columns // group)
    scales = rng.uniform(0.001, 0.02, shape).astype(np.float16).astype(np.float32)
    if wide:
        scales *= np.float32(1.0 + 2.0**-18)
    biases = rng.uniform(-0.1, 0.1, shape).astype(np.float16).astype(np.float32)
    if centre is not None:
        biases = np.float32(-(1 << centre)) * scales
    stored = (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8) if bits <= 4 else codes
    return Affine(bits=bits, group=group, codes=stored, scales=scales, biases=biases)


KINDS = [
    affine(2, 16),
    affine(3, 16, centre=2, wide=True),
    affine(4, 32),
    affine(4, 32, centre=3),
    affine(4, 64),
    affine(4, 128, wide=True),
    affine(5, 32, centre=4),
    affine(6, 16, centre=5, wide=True),
    affine(6, 16, wide=True),
    affine(8, 32, centre=7),
    affine(8, 64),
    affine(8, 32, wide=True),
    affine(8, 16),
]


@pytest.mark.parametrize("tensor", KINDS, ids=lambda each: f"{each.bits} bits by {each.group}")
def test_an_embedding_gives_back_every_value(session: CpuSession, tensor: Affine) -> None:
    """Exactly: code times scale, rounded, plus bias."""
    table = session.packer.embedding([tensor])
    store = session.store({}, {}, 1)
    ids = session.array(np.arange(tensor.shape[0], dtype=np.int32))
    assert np.array_equal(session.numpy(session.ops("rows", store, {}).embed(ids, table)), tensor.f32())


@pytest.mark.parametrize("tensor", KINDS, ids=lambda each: f"{each.bits} bits by {each.group}")
def test_a_product_differs_by_the_rounding_of_activations_alone(session: CpuSession, tensor: Affine) -> None:
    """Activations that eight bits hold exactly give the exact product, but for the order of sums."""
    rng = np.random.default_rng(1)
    x = rng.integers(-127, 128, (11, tensor.shape[1])).astype(np.float32)
    x[:, ::16] = 127.0  # so that every scale is 1
    packed = session.packer.linear([tensor], [None])
    store = session.store({}, {}, 1)
    got = session.numpy(session.ops("rows", store, {}).linear(session.array(x), packed))
    right = x.astype(np.float64) @ tensor.f32().astype(np.float64).T
    assert np.abs(got - right).max() < 1e-5 * np.abs(x).max() * tensor.shape[1] ** 0.5


def test_scales_lie_in_half_precision_where_it_holds_them() -> None:
    """And codes that are centred at a power of two have no biases."""
    narrow, wide = (
        panels_of([affine_source(each)], 256) for each in (affine(4, 32, centre=3), affine(4, 32, wide=True))
    )
    assert isinstance(narrow, AffinePanels) and isinstance(wide, AffinePanels)
    assert narrow.scales.dtype == np.float16 and narrow.biases is None and narrow.centre == 3
    assert wide.scales.dtype == np.float32 and wide.biases is not None


def test_neighbours_that_are_stored_alike_are_one_part(session: CpuSession) -> None:
    """Queries, keys and values of one kind are one product; a part of another kind stays by itself."""
    parts = [affine(4, 32, rows=rows) for rows in (32, 16, 5)]
    packed = session.packer.linear([*parts, affine(8, 32, rows=7, centre=7)], [None] * 4)
    assert isinstance(packed, CpuLinear)
    assert [part.panels.rows for part in packed.parts] == [53, 7]
    assert [part.first for part in packed.parts] == [0, 53]


def test_a_part_with_a_bias_and_one_without_are_joined_rightly(session: CpuSession) -> None:
    """The one without has zeros."""
    parts = [affine(4, 32, rows=16), affine(4, 32, rows=9)]
    bias = np.arange(16, dtype=np.float32)
    packed = session.packer.linear(parts, [Dense(bias, "f32"), None])
    plain = session.packer.linear(parts, [None, None])
    ops = session.ops("rows", session.store({}, {}, 1), {})
    x = session.array(np.ones((2, 256), np.float32))
    with_bias, without = session.numpy(ops.linear(x, packed)), session.numpy(ops.linear(x, plain))
    assert np.array_equal(with_bias[:, :16], without[:, :16] + bias) and np.array_equal(
        with_bias[:, 16:], without[:, 16:]
    )


def _relative(tensor: Dense, bits: int) -> float:
    stored = quantized(tensor, 4 if bits == 4 else 8)
    values = tensor.f32()
    return float(np.abs(stored.f32()[:, : values.shape[1]] - values).max() / np.abs(values).max())


def test_floats_are_quantized_within_half_a_step() -> None:
    """Eight bits are 127 steps on each side; four bits are 15 over a group's range. Odd widths are filled up."""
    rng = np.random.default_rng(2)
    values = rng.standard_normal((9, 70)).astype(np.float32)
    assert _relative(Dense(values, "f32"), 8) < 0.6 / 127
    assert _relative(Dense(values, "f32"), 4) < 1.1 / 15


def test_values_outside_of_half_precision_are_quantized_with_wide_scales() -> None:
    """A weight of 1e8 and one of 1e-9 keep their size."""
    for size in (1e8, 1e-9):
        values = np.full((2, 32), size, np.float32)
        values[0] *= -1
        assert np.allclose(quantized(Dense(values, "f32"), 8).f32(), values, rtol=1e-2)
        panels = panels_of([affine_source(quantized(Dense(values, "f32"), 8))], 32)
        assert isinstance(panels, AffinePanels) and panels.scales.dtype == np.float32

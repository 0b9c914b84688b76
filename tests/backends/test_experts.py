"""Mixtures of experts: rows are laid out by the experts that they chose, and none of that can be seen in them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import FrameType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.contracts.backend import Backend, BackendSettings, Session
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.tensors import Affine, Dense, Tensor
from tensorfold_backend_cpu.session import CpuSession

EXPERTS, HIDDEN, WIDTH, CHOSEN = 24, 64, 32, 4
Floats = NDArray[np.float32]


@pytest.fixture(
    params=[
        "cpu",
        pytest.param("mlx", marks=pytest.mark.mlx),
        pytest.param("torch", marks=pytest.mark.torch),
        pytest.param("torch on a GPU", marks=pytest.mark.torch),
    ]
)
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session[Any]]:
    """Of each backend; torch also with the products that it makes on a GPU, which are the same calls on a CPU."""
    name, _, elsewhere = str(request.param).partition(" ")
    if elsewhere:
        monkeypatch.setattr("tensorfold_backend_torch.ops.GROUPS", None)
    made: type[Backend] = getattr(import_module(f"tensorfold_backend_{name}"), f"{name.capitalize()}Backend")
    session = made().open(BackendSettings(device="cpu", dtype="float32", threads=2))
    yield session
    session.close()


def plain(rng: np.random.Generator, rows: int, columns: int) -> Tensor:
    return Dense(rng.standard_normal((rows, columns)).astype(np.float32), "f32")


def coded(rng: np.random.Generator, rows: int, columns: int) -> Tensor:
    groups = (rows, columns // 32)
    scales = rng.uniform(0.01, 0.02, groups).astype(np.float32)
    codes = rng.integers(0, 256, (rows, columns // 2), dtype=np.uint8)
    return Affine(4, 32, codes, scales, np.float32(-7.5) * scales)


class Mixture:
    """Experts of one session, whose matrices are stored in the given ways in turn."""

    def __init__(self, session: Session[Any], ways: Sequence[Any], *, only: int | None = None) -> None:
        rng = np.random.default_rng(1)
        kinds = [ways[number % len(ways)] for number in range(EXPERTS)]
        up = [[kind(rng, WIDTH, HIDDEN), kind(rng, WIDTH, HIDDEN)] for kind in kinds]
        down = [kind(rng, HIDDEN, WIDTH) for kind in kinds]
        if only is not None:
            up, down = [up[only]], [down[only]]
        self.session = session
        self.up = np.stack([np.concatenate([part.f32() for part in parts]) for parts in up]).astype(np.float64)
        self.down = np.stack([part.f32() for part in down]).astype(np.float64)
        self.ops: Ops[Any] = session.ops("rows", session.store({}, {}, 1), {})
        self.packed = session.packer.experts(up, down, act="silu", gated=True, limit=None)

    def __call__(self, x: Floats, ids: NDArray[np.int32], weights: Floats) -> Floats:
        """What the experts make of rows, on the host."""
        array = self.session.array
        y = self.ops.experts(array(x), array(ids), array(weights), self.packed)
        self.session.finish()
        return np.array(self.session.numpy(y))


def rows(count: int, experts: int = EXPERTS) -> tuple[Floats, NDArray[np.int32], Floats]:
    """Rows, their choices among the first experts, and the weights of those."""
    rng = np.random.default_rng(count)
    ids = np.argsort(rng.random((count, experts)))[:, :CHOSEN].astype(np.int32)
    return (
        rng.standard_normal((count, HIDDEN)).astype(np.float32),
        ids,
        rng.random((count, CHOSEN)).astype(np.float32),
    )


WAYS = {"floats": [plain], "codes": [coded], "both": [plain, coded]}


@pytest.mark.parametrize("ways", WAYS)
def test_a_row_has_the_bits_that_it_has_alone(session: Session[Any], ways: str) -> None:
    """However many rows share an expert, more than are multiplied at a time included, and however each is stored."""
    mixture = Mixture(session, WAYS[ways])
    x, ids, weights = rows(300, 5)
    together = mixture(x, ids, weights)
    for row in (0, 1, 150, 299):
        alone = slice(row, row + 1)
        np.testing.assert_array_equal(mixture(x[alone], ids[alone], weights[alone])[0], together[row])


def test_rows_may_all_choose_one_expert(session: Session[Any]) -> None:
    """In every rank, so that it has more rows than there are; each has the bits that it has alone."""
    mixture = Mixture(session, [coded])
    x, _, weights = rows(300)
    ids = np.full((300, CHOSEN), 7, np.int32)
    together = mixture(x, ids, weights)
    for row in (0, 1, 150, 299):
        alone = slice(row, row + 1)
        np.testing.assert_array_equal(mixture(x[alone], ids[alone], weights[alone])[0], together[row])


def test_every_expert_is_the_one_that_was_chosen(session: Session[Any]) -> None:
    """Each alone gives the bits that it gives among the others."""
    mixture = Mixture(session, [coded])
    x = rows(1)[0]
    one = np.ones((1, 1), np.float32)
    for expert in range(EXPERTS):
        chosen = mixture(x, np.full((1, 1), expert, np.int32), one)
        alone = Mixture(session, [coded], only=expert)(x, np.zeros((1, 1), np.int32), one)
        np.testing.assert_array_equal(chosen, alone)


def test_rows_are_multiplied_by_what_they_chose(session: Session[Any]) -> None:
    """As float64 has it: one expert is chosen by more rows than are multiplied at a time, others by one or none."""
    mixture = Mixture(session, [plain])
    x, ids, weights = rows(21)
    ids[:12, 0] = 7
    inner = np.einsum("rkoh,rh->rko", mixture.up[ids], x.astype(np.float64))
    gate, up = inner[..., :WIDTH], inner[..., WIDTH:]
    opened = gate / (1 + np.exp(-gate)) * up
    expected = np.einsum("rk,rkhi,rki->rh", weights, mixture.down[ids], opened)
    off = np.linalg.norm(mixture(x, ids, weights) - expected) / np.linalg.norm(expected)
    # The cpu backend keeps such matrices, and the rows they meet, in 8 bits.
    assert off < (2e-2 if isinstance(session, CpuSession) else 1e-5)


@pytest.mark.parametrize("count", [2, 12])
def test_no_loop_goes_over_rows_or_experts(session: Session[Any], count: int, request: pytest.FixtureRequest) -> None:
    """One row that chose four and some that chose eight or all cost equally many calls of Python functions.

    On a GPU eight products are one call: all experts cost three more for each product, still fewer than one an expert.
    """
    mixture = Mixture(session, [coded])
    few, (x, ids, weights) = rows(1), rows(count)
    many = x, (np.arange(ids.size, dtype=np.int32) % EXPERTS).reshape(ids.shape), weights
    for each in (few, many):
        mixture(*each)
    further = calls(mixture, many) - calls(mixture, few)
    assert further == 0 or ("GPU" in request.node.name and count == 12 and further < EXPERTS - CHOSEN)


def calls(mixture: Mixture, given: tuple[Floats, NDArray[np.int32], Floats]) -> int:
    """How many calls of Python functions and of libraries it takes to record the work."""
    x, ids, weights = (mixture.session.array(each) for each in given)
    count = 0

    def counted(frame: FrameType, event: str, what: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    # What it takes once, to make memory that is lent again later, is not counted; nor is garbage of other tests.
    mixture.ops.experts(x, ids, weights, mixture.packed)
    mixture.session.finish()
    gc.collect()
    gc.disable()
    sys.setprofile(counted)
    try:
        mixture.ops.experts(x, ids, weights, mixture.packed)
    finally:
        sys.setprofile(None)
        gc.enable()
    return count

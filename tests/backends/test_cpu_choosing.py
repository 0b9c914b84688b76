"""Experts that the cpu backend's kernels choose: those that the definition chooses, with its weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.contracts.backend import BackendSettings
from tensorfold.contracts.handles import Router
from tensorfold.contracts.tensors import Dense
from tensorfold.errors import BackendError
from tensorfold_backend_cpu import CpuBackend
from tensorfold_backend_cpu.session import CpuSession

Floats = NDArray[np.float32]
Score = Literal["softmax", "sigmoid"]


@pytest.fixture(scope="module")
def session() -> Iterator[CpuSession]:
    session = CpuBackend().open(BackendSettings(threads=2))
    yield session
    session.close()


def chosen(
    session: CpuSession, logits: Floats, router: Router, bias: Floats | None = None
) -> tuple[NDArray[np.int64], Floats]:
    """Ids and weights of each row, on the host."""
    ops = session.ops("rows", session.store({}, {}, 1), {})
    ids, weights = ops.route(session.array(logits), router, None if bias is None else session.packer.vector(bias))
    return session.numpy(ids).astype(np.int64), session.numpy(weights)


def defined(logits: Floats, router: Router, bias: Floats | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each row and expert what chooses and what weighs, as `Router` words it, in double precision."""
    wide = logits.astype(np.float64)
    powers = np.exp(wide - wide.max(-1, keepdims=True))
    scores = powers / powers.sum(-1, keepdims=True) if router.score == "softmax" else 1 / (1 + np.exp(-wide))
    choosing = scores if bias is None else scores + bias
    grouped = choosing.reshape(len(logits), router.groups, -1)
    worth = np.sort(grouped)[..., -2:].sum(-1)
    kept = np.argsort(np.argsort(-worth)) < router.keep_groups
    return np.where(kept[..., None], grouped, -np.inf).reshape(choosing.shape), scores


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    ("experts", "k", "groups", "keep"), [(5, 5, 1, 1), (17, 3, 1, 1), (128, 8, 8, 4), (512, 10, 1, 1), (300, 7, 3, 2)]
)
def test_the_best_are_chosen_and_weighed(
    session: CpuSession, score: Score, biased: bool, experts: int, k: int, groups: int, keep: int
) -> None:
    """For counts that fill vectors and counts that do not, with and without groups."""
    rng = np.random.default_rng(experts)
    logits = rng.standard_normal((40, experts)).astype(np.float32)
    bias = rng.standard_normal(experts).astype(np.float32) if biased else None
    factors = tuple(rng.uniform(0.5, 2, experts).astype(np.float32).tolist())
    for scale in (None, factors):
        router = Router(k, score, renorm=scale is None, scale=1.5, groups=groups, keep_groups=keep, expert_scale=scale)
        ids, weights = chosen(session, logits, router, bias)
        choosing, scores = defined(logits, router, bias)
        # Two that differ by less than a float shows may change places.
        best = -np.sort(-choosing)[:, :k]
        np.testing.assert_allclose(np.take_along_axis(choosing, ids, 1), best, rtol=1e-6)
        assert all(len(set(row)) == k for row in ids.tolist())
        shares = np.take_along_axis(scores, ids, 1)
        shares /= 1 if scale is not None else shares.sum(-1, keepdims=True)
        shares *= 1.5 * (1 if scale is None else np.array(scale)[ids])
        np.testing.assert_allclose(weights, shares, rtol=2e-6)


def test_of_equal_ones_the_lower_is_chosen(session: CpuSession) -> None:
    logits = np.tile(np.array([1, 3, 3, 2, 3, 2, 1, 2], np.float32), (2, 3))
    ids, _ = chosen(session, logits, Router(12, "softmax"))
    assert ids.tolist() == [[1, 2, 4, 9, 10, 12, 17, 18, 20, 3, 5, 7]] * 2


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_what_is_not_finite_still_chooses_experts_that_exist(session: CpuSession, score: Score) -> None:
    """Each once, whatever stands where; the reply fails over its logits later, and nothing else is harmed."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((60, 19)).astype(np.float32)
    for value in (np.nan, np.inf, -np.inf):
        logits[rng.random(logits.shape) < 0.2] = value
    logits[0] = np.nan
    ids, _ = chosen(session, logits, Router(6, score))
    assert all(len(set(row)) == 6 and min(row) >= 0 and max(row) < 19 for row in ids.tolist())


def test_more_than_there_are_cannot_be_chosen(session: CpuSession) -> None:
    """Groups that are left out count for nothing."""
    logits = np.zeros((1, 16), np.float32)
    with pytest.raises(BackendError, match="9 of 16 experts cannot be chosen in 2 of 4 groups"):
        chosen(session, logits, Router(9, "sigmoid", groups=4, keep_groups=2))


def test_a_number_that_no_expert_has_harms_no_other_row(session: CpuSession) -> None:
    """A family that does not take them from `route` gets a wrong row, and no other memory is written to."""
    rng = np.random.default_rng(0)
    matrices = [Dense(rng.standard_normal((32, 32)).astype(np.float32), "f32") for _ in range(12)]
    pairs = [matrices[number : number + 2] for number in range(0, 8, 2)]
    experts = session.packer.experts(pairs, matrices[8:], act="silu", gated=True, limit=None)
    ops = session.ops("rows", session.store({}, {}, 1), {})
    x = session.array(rng.standard_normal((6, 32)).astype(np.float32))
    weights = session.array(rng.random((6, 2)).astype(np.float32))
    ids = np.array([[0, 1], [3, 2], [1, 0], [2, 3], [0, 3], [1, 2]], np.int32)
    right = session.numpy(ops.experts(x, session.array(ids), weights, experts)).copy()
    ids[2] = -7, 1 << 30
    wrong = session.numpy(ops.experts(x, session.array(ids), weights, experts))
    others = [0, 1, 3, 4, 5]
    np.testing.assert_array_equal(wrong[others], right[others])

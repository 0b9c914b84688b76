"""The composed operations, store and packer: what goes wrong is told, and the order of sums is the one promised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.compute.composed_plans import LookbackPlan, TurnPlan, block_plan
from tensorfold.compute.store import ComposedStore
from tensorfold.contracts.backend import BackendSettings
from tensorfold.contracts.handles import Linear
from tensorfold.contracts.states import KV, Conv, IndexKeys, Latent, Recent, Recurrent, StateSpec, TableKey
from tensorfold.contracts.step import Segment, Step
from tensorfold.contracts.tensors import Affine, Dense
from tensorfold.errors import BackendError
from tensorfold.testing.reference import NumpyPrimitives, ReferenceBackend, ReferenceSession

Array = NDArray[Any]
ALL = TableKey("main", None)


def opened() -> ReferenceSession:
    """A reference session."""
    return ReferenceBackend().open(BackendSettings())


def step_of(segments: list[Segment], pages: dict[TableKey, tuple[tuple[int, ...], ...]]) -> Step[Array]:
    """A Step of these segments."""
    counts = [len(each.tokens) for each in segments]
    ends = np.cumsum(counts)
    bounds = tuple((int(end - count), int(end)) for end, count in zip(ends, counts, strict=True))
    positions = np.concatenate([each.start + np.arange(len(each.tokens), dtype=np.int32) for each in segments])
    ids = np.zeros(len(positions), np.int32)
    nothing = np.empty((0, 0), np.int64)
    return Step("rows", tuple(segments), bounds, ids, positions, ids, positions, lambda n: nothing, pages, None)


def stored(states: dict[str, StateSpec], slots: int = 2) -> ComposedStore[Array]:
    """A store of four pages a table."""
    return ComposedStore(
        NumpyPrimitives(),
        states,
        {TableKey.of(spec): 4 for spec in states.values() if isinstance(spec, KV | Latent | IndexKeys)},
        slots,
    )


class Rows:
    """Open rows whose state after n of them is n everywhere."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape

    def kept(self, rows: int) -> Array:
        return np.full(self._shape, float(rows), np.float32)


# ---- sums ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 13, 64])
def test_a_sum_goes_by_adjacent_pairs(count: int) -> None:
    """The order of additions is a tree over neighbours, whatever the size."""
    x = np.random.default_rng(count).normal(size=(3, count)).astype(np.float32)
    expected = [x[:, place] for place in range(count)]
    while len(expected) > 1:
        pairs = [left + right for left, right in zip(expected[0::2], expected[1::2], strict=False)]
        expected = pairs + expected[len(expected) - len(expected) % 2 :]
    assert NumpyPrimitives().sum(x, 1).tobytes() == expected[0].tobytes()


@pytest.mark.parametrize("zeros", [1, 2, 5, 50])
def test_appended_zeros_change_no_bit_of_a_sum(zeros: int) -> None:
    """This is what makes a row's attention independent of how far its neighbours read."""
    x = np.random.default_rng(0).normal(size=(7, 13)).astype(np.float32)
    longer = np.concatenate([x, np.zeros((zeros, 13), np.float32)])
    primitives = NumpyPrimitives()
    assert primitives.sum(longer, 0).tobytes() == primitives.sum(x, 0).tobytes()


# ---- plans ---------------------------------------------------------------------------------------------------


def test_a_page_that_was_given_back_is_not_read() -> None:
    """A table with a hole where a row looks is a fault of the core, and is told."""
    step = step_of([Segment(0, (0,), 130)], {ALL: ((3, -1, 2),)})
    plan = block_plan(step, ALL)
    with pytest.raises(BackendError, match="given back"):
        plan.table(0, 1)


def test_a_window_reads_only_the_pages_that_it_reaches() -> None:
    """Pages behind the window may be gone."""
    near = TableKey("main", 20)
    plan = block_plan(step_of([Segment(0, (0, 0), 139)], {near: ((-1, 7, 2),)}), near)
    assert plan.table(0, 2).tolist() == [[7, 2], [7, 2]]
    assert plan.visible(0, 1).sum() == 20


def test_rows_that_complete_a_pool_are_stored_and_no_others() -> None:
    """With pools of four, positions 3, 7, ... have a row of their own in the page."""
    plan = block_plan(step_of([Segment(0, (0,) * 6, 62)], {ALL: ((5, 9),)}), ALL)
    assert plan.stored(4).tolist() == [1, 5]
    assert plan.write_index(1, 16).tolist() == [[5 * 16 + 15], [9 * 16 + 0]]


def test_lookbacks_stay_within_their_own_sequence() -> None:
    """Kept inputs come first, then the rows; nothing of a neighbour is reached."""
    step = step_of([Segment(4, (0, 0, 0), 9), Segment(1, (0,), 0)], {})
    plan = LookbackPlan.of(step, 2, (2, 1, 0))
    assert plan.slots.tolist() == [4, 1]
    assert plan.index.tolist() == [[0, 1, 4], [1, 4, 5], [4, 5, 6], [2, 3, 7]]
    assert [plan.after(0, rows).tolist() for rows in range(4)] == [[0, 1], [1, 4], [4, 5], [5, 6]]


def test_a_recurrence_takes_one_row_of_every_sequence_at_a_time() -> None:
    """Longest first; outputs find their way back to the rows' order."""
    plan = TurnPlan.of(step_of([Segment(0, (0,), 0), Segment(1, (0,) * 3, 0), Segment(2, (0,) * 2, 0)], {}))
    assert plan.order == (1, 2, 0)
    assert [turn.tolist() for turn in plan.turns] == [[1, 4, 0], [2, 5], [3]]
    assert np.concatenate(plan.turns)[plan.back].tolist() == [0, 1, 2, 3, 4, 5]


# ---- the store -----------------------------------------------------------------------------------------------


def test_a_state_of_another_kind_is_named() -> None:
    """The error says what was declared, and what the operation needs."""
    store = stored({"kv": KV(1, 4, 4)})
    with pytest.raises(BackendError, match="'kv' is declared as KV, and this operation needs Conv"):
        store.spec("kv", Conv)
    with pytest.raises(BackendError, match="'conv' is not declared"):
        store.spec("conv", Conv)


def test_open_rows_are_committed_before_anything_else() -> None:
    """A second step, and a copy, of a slot with open rows are refused; another slot is free to go on."""
    store = stored({"recent": Recent(3, 3)})
    store.leave_open(0, "recent", Rows((2, 3)))
    store.leave_open(1, "recent", Rows((2, 3)))
    with pytest.raises(BackendError, match="slot 0 has open rows in state 'recent'"):
        store.leave_open(0, "recent", Rows((2, 3)))
    with pytest.raises(BackendError, match="slot 0 has open rows"):
        store.save(0, "main")
    store.commit(0, "main", 10, 4, 13)
    assert np.array_equal(store.save(0, "main").export()["recent"], np.full((2, 3), 3.0))


@pytest.mark.parametrize("length", [9, 15])
def test_a_commit_outside_of_the_open_rows_is_refused(length: int) -> None:
    """Of four rows from position 10 on, the length is 10 to 14."""
    with pytest.raises(BackendError, match="of 4 open rows from 10"):
        stored({"recent": Recent(3, 3)}).commit(0, "main", 10, 4, length)


def test_a_commit_of_nothing_leaves_what_was_there() -> None:
    """Rows that are all dropped, and states that a failed step did not reach, change nothing."""
    store = stored({"recent": Recent(3, 3), "recurrent": Recurrent((2, 2))})
    store.leave_open(0, "recent", Rows((2, 3)))
    store.commit(0, "main", 0, 2, 2)
    store.leave_open(0, "recent", Rows((2, 3)))
    store.commit(0, "main", 2, 5, 2)
    saved = store.save(0, "main").export()
    assert np.array_equal(saved["recent"], np.full((2, 3), 2.0))
    assert not saved["recurrent"].any()


def test_a_saved_slot_is_a_copy() -> None:
    """What is committed afterwards does not reach it."""
    store = stored({"recent": Recent(3, 3)})
    saved = store.save(0, "main")
    store.leave_open(0, "recent", Rows((2, 3)))
    store.commit(0, "main", 0, 2, 2)
    assert not saved.export()["recent"].any()
    assert saved.bytes == 2 * 3 * 4


def test_states_that_do_not_fit_are_refused_by_name() -> None:
    """A missing state, a wrong shape and a foreign copy are told apart."""
    store = stored({"recent": Recent(3, 3), "kv": KV(1, 4, 4)})
    with pytest.raises(BackendError, match="lacks the states recent"):
        store.import_saved("main", {})
    with pytest.raises(BackendError, match=r"recent was exported with shape \(5,\)"):
        store.import_saved("main", {"recent": np.zeros(5, np.float32)})
    with pytest.raises(BackendError, match="lacks kv/0"):
        store.import_page(ALL, 0, {})
    with pytest.raises(BackendError, match="of another backend"):
        store.load(0, "main", object())  # type: ignore[arg-type]


# ---- packing -------------------------------------------------------------------------------------------------


def test_a_fused_group_may_mix_what_is_stored_how() -> None:
    """Dense and quantized parts become one matrix, a part without a bias gets zeros, in the order asked."""
    rng = np.random.default_rng(1)
    dense = Dense(rng.normal(size=(3, 16)).astype(np.float16), "f16")
    codes = rng.integers(0, 256, (2, 8), dtype=np.uint8)
    affine = Affine(4, 16, codes, np.full((2, 1), 0.5, np.float32), np.full((2, 1), -1.0, np.float32))
    packed = opened().packer.linear([dense, affine], [None, Dense(np.ones(2, np.float32), "f32")])
    assert (packed.sizes, packed.columns) == ((3, 2), 16)
    x = np.eye(16, dtype=np.float32)
    y = opened().ops("rows", stored({}), {}).linear(x, packed)
    assert np.array_equal(y, np.concatenate([dense.f32().T, affine.f32().T + 1.0], 1))


def test_a_tied_head_shares_the_table() -> None:
    """Not a second copy of the largest matrix."""
    session = opened()
    embedding = session.packer.embedding([Dense(np.ones((4, 16), np.float32), "f32")])
    head: Any = session.packer.tied(embedding)
    table: Any = embedding
    assert head.weight is table.table


def test_nothing_refers_to_the_file_after_packing() -> None:
    """A mapped file may be closed once its weights are packed."""
    values = np.ones((4, 16), np.float32)
    packed: Any = opened().packer.linear([Dense(values, "f32")], [None])
    values[:] = 7.0
    assert (packed.weight == 1.0).all()


def test_weights_that_cannot_be_used_are_refused() -> None:
    """Matrices of two widths, and a handle that another backend packed."""
    session = opened()
    narrow, wide = (Dense(np.ones((2, width), np.float32), "f32") for width in (16, 32))
    with pytest.raises(BackendError, match=r"\[16, 32\] columns"):
        session.packer.linear([narrow, wide], [None, None])
    with pytest.raises(BackendError, match="packed as Linear"):
        session.ops("rows", stored({}), {}).linear(np.ones((1, 16), np.float32), Linear())

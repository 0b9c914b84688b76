"""Fixed-size states that the cpu backend's kernels compute in place: what is kept of a step, and what comes between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.contracts.backend import BackendSettings, StateStore
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import Conv, Recurrent, StateSpec
from tensorfold.contracts.step import Segment, Step
from tensorfold.errors import BackendError
from tensorfold_backend_cpu import CpuBackend
from tensorfold_backend_cpu.rows import Rows
from tensorfold_backend_cpu.session import CpuSession

Floats = NDArray[np.float32]

HEADS, KEY, VALUE, STATES, CHANNELS, SLOTS = 2, 8, 24, 20, 600, 4


@pytest.fixture(scope="module")
def session() -> Iterator[CpuSession]:
    session = CpuBackend().open(BackendSettings(threads=2))
    yield session
    session.close()


@dataclass(frozen=True)
class Kind:
    """One operation over a state."""

    spec: StateSpec
    widths: tuple[tuple[int, ...], ...]
    """Of a row of each input."""
    run: Callable[[CpuSession, Ops[Rows], Step[Rows], Sequence[Rows]], Rows]


def _conv(session: CpuSession, ops: Ops[Rows], step: Step[Rows], inputs: Sequence[Rows]) -> Rows:
    rng = np.random.default_rng(3)
    kernel, bias = rng.standard_normal((CHANNELS, 3)), rng.standard_normal(CHANNELS)
    weight = session.packer.conv(kernel.astype(np.float32), bias.astype(np.float32))
    return ops.short_conv(step, "state", inputs[0], weight, act="silu")


def _delta(session: CpuSession, ops: Ops[Rows], step: Step[Rows], inputs: Sequence[Rows]) -> Rows:
    q, k, v, g, beta = inputs
    return ops.gated_delta(step, "state", q, k, v, g, beta, scale=0.3)


def _ssd(session: CpuSession, ops: Ops[Rows], step: Step[Rows], inputs: Sequence[Rows]) -> Rows:
    x, dt, b, c = inputs
    a, d = (session.packer.vector(np.full(HEADS, value, np.float32)) for value in (-0.3, 1.5))
    return ops.ssd(step, "state", x, dt, a, b, c, d)


KINDS = {
    "conv": Kind(Conv(CHANNELS, 3, 2), ((CHANNELS,),), _conv),
    "delta": Kind(
        Recurrent((HEADS, KEY, VALUE)), ((HEADS, KEY), (HEADS, KEY), (HEADS, VALUE), (HEADS,), (HEADS,)), _delta
    ),
    "ssd": Kind(Recurrent((HEADS, VALUE, STATES)), ((HEADS, VALUE), (HEADS,), (1, STATES), (1, STATES)), _ssd),
}


class Run:
    """Sequences whose inputs follow from their slots and positions alone."""

    def __init__(self, session: CpuSession, kind: Kind) -> None:
        self.session, self.kind = session, kind
        states = {"state": kind.spec}
        self.store: StateStore = session.store(states, {}, SLOTS)
        self.ops = session.ops("rows", self.store, states)

    def step(self, *parts: tuple[int, int, int]) -> Floats:
        """So many rows of slots from positions on: `(slot, start, rows)` each."""
        bounds, first = [], 0
        for _, _, rows in parts:
            bounds.append((first, first + rows))
            first += rows
        ids = np.zeros(first, np.int32)
        step: Step[Rows] = Step(
            kind="rows",
            segments=tuple(Segment(slot, (0,) * rows, start) for slot, start, rows in parts),
            bounds=tuple(bounds),
            ids=self.session.array(ids),
            positions=self.session.array(ids),
            host_ids=ids,
            host_positions=ids,
            history=lambda n: np.zeros((0, n), np.int64),
            pages={},
            wanted=None,
        )
        inputs = [
            self.session.array(np.concatenate([self._input(number, *part) for part in parts]))
            for number in range(len(self.kind.widths))
        ]
        return np.array(self.session.numpy(self.kind.run(self.session, self.ops, step, inputs)))

    def _input(self, number: int, slot: int, start: int, rows: int) -> Floats:
        rng = np.random.default_rng((number, slot))
        every = rng.standard_normal((200, *self.kind.widths[number])).astype(np.float32)
        return -np.abs(every[start : start + rows]) if number == 3 else every[start : start + rows]

    def keep(self, slot: int, start: int, rows: int, kept: int) -> None:
        self.store.commit(slot, "main", start, rows, start + kept)

    def state(self, slot: int) -> Any:
        return self.store.save(slot, "main").export()["state"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.mark.parametrize("kept", [0, 1, 3, 5, 6])
@pytest.mark.parametrize("between", [0, 1, 6, 70])
def test_a_step_that_comes_before_the_last_one_is_kept_changes_nothing(
    session: CpuSession, kind: Kind, kept: int, between: int
) -> None:
    """Its inputs lie where those of the last one lay; of many rows and of a single one they lie elsewhere."""
    alone, disturbed = Run(session, kind), Run(session, kind)
    for run in (alone, disturbed):
        run.step((1, 0, 7))
        run.keep(1, 0, 7, 7)
        run.step((1, 7, 6))
    if between:
        disturbed.step((2, 0, between))
    for run in (alone, disturbed):
        run.keep(1, 7, 6, kept)
    np.testing.assert_array_equal(alone.state(1), disturbed.state(1))
    fresh = Run(session, kind)
    fresh.step((1, 0, 7 + kept))
    fresh.keep(1, 0, 7 + kept, 7 + kept)
    np.testing.assert_array_equal(fresh.state(1), alone.state(1))


def test_sequences_of_one_step_are_kept_each_for_itself(session: CpuSession, kind: Kind) -> None:
    run = Run(session, kind)
    run.step((0, 0, 4), (2, 0, 1), (3, 0, 9))
    for slot, rows, kept in ((3, 9, 2), (0, 4, 4), (2, 1, 0)):
        run.keep(slot, 0, rows, kept)
    for slot, kept in ((0, 4), (3, 2)):
        alone = Run(session, kind)
        alone.step((slot, 0, kept))
        alone.keep(slot, 0, kept, kept)
        np.testing.assert_array_equal(alone.state(slot), run.state(slot))
    assert not run.state(2).any()


def test_open_rows_are_kept_before_the_next_ones_come(session: CpuSession, kind: Kind) -> None:
    """A second step of a sequence, or a copy of it, is refused until then."""
    run = Run(session, kind)
    run.step((1, 0, 2))
    with pytest.raises(BackendError, match="slot 1 has open rows"):
        run.step((1, 2, 2))
    with pytest.raises(BackendError, match="slot 1 has open rows"):
        run.store.save(1, "main")
    run.store.reset(1, "main")
    assert not run.state(1).any()


def test_a_saved_state_comes_back_in_another_slot(session: CpuSession, kind: Kind) -> None:
    """As it was saved, and as it was exported; of another shape, or without one of its states, it is refused."""
    run = Run(session, kind)
    run.step((0, 0, 5))
    run.keep(0, 0, 5, 5)
    saved = run.store.save(0, "main")
    run.step((0, 5, 1))
    run.keep(0, 5, 1, 1)
    run.store.load(1, "main", saved)
    exported = dict(saved.export())
    run.store.load(2, "main", run.store.import_saved("main", exported))
    for slot in (1, 2):
        np.testing.assert_array_equal(run.state(slot), exported["state"])
    assert (run.state(0) != exported["state"]).any()
    with pytest.raises(BackendError, match="lacks the state"):
        run.store.import_saved("main", {})
    with pytest.raises(BackendError, match="was exported with shape"):
        run.store.import_saved("main", {"state": exported["state"][:1]})


def test_a_state_of_another_kind_is_named(session: CpuSession) -> None:
    run = Run(session, KINDS["conv"])
    with pytest.raises(BackendError, match="'state' is not declared as Recurrent"):
        _ = Run.step(run_as(run, KINDS["delta"]), (0, 0, 1))


def run_as(run: Run, kind: Kind) -> Run:
    """Another operation over the same store."""
    run.kind = kind
    return run

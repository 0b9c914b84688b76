"""What every backend has to pass: subclass `BackendContract` in a test module and give it the backend.

    from tensorfold.testing.backends import BackendContract

    class TestAcme(BackendContract):
        backend = AcmeBackend()
        tolerance = 1e-4

Every operation is run at widths that are easy to get wrong, by chunks and by rows, over scattered pages, and held
against the composed operations in float64. In `rows` Steps the bits of a row may not depend on its neighbours: each
arrangement of 1, 2, 3, 5, 8 and 13 rows must give what each row gives alone, with rolled-back rows in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.compute.sampling import draw_rows
from tensorfold.contracts.backend import Backend, BackendSettings, Session
from tensorfold.contracts.family import Geometry
from tensorfold.contracts.sampling import Draw, SamplingRule
from tensorfold.contracts.states import KV, Conv, IndexKeys, Latent, Recent, Recurrent, StateSpec, TableKey
from tensorfold.testing.op_cases import PURE_CASES
from tensorfold.testing.op_kit import Kit
from tensorfold.testing.op_state_cases import STATE_CASES
from tensorfold.testing.op_trial import OpCase, Part, Trial
from tensorfold.testing.reference import ReferenceBackend

__all__ = ["COUNTS", "BackendContract", "Bench"]

COUNTS = (1, 2, 3, 5, 8, 13)
"""Rows that share a Step."""
NEW = 16
"""Rows that every sequence of a trial is given after its prefix."""
CHUNK = 61
"""The chunk in which prefixes are computed: no multiple of a page or of a tile."""

Outputs = list[dict[int, NDArray[np.float32]]]

_every_case = pytest.mark.parametrize("case", [*PURE_CASES, *STATE_CASES], ids=lambda case: case.name)
_every_state = pytest.mark.parametrize("case", STATE_CASES, ids=lambda case: case.name)


class Bench:
    """A session under test beside the oracle's, and what each case gave when its rows ran alone."""

    def __init__(self, backend: Backend, settings: BackendSettings) -> None:
        self.session: Session[Any] = backend.open(settings)
        self.oracle = ReferenceBackend("float64").open(BackendSettings())
        self._kits: dict[int, Kit[Any]] = {id(each): Kit(each) for each in (self.session, self.oracle)}
        self._alone: dict[str, Outputs] = {}
        self._right: dict[str, Outputs] = {}

    def trial(self, case: OpCase, session: Session[Any] | None = None, *, prefix: bool = True) -> Trial[Any]:
        """Three sequences of unlike length."""
        chosen = self.session if session is None else session
        trial: Trial[Any] = Trial(case, chosen, kit=self._kits[id(chosen)])
        if prefix and case.prefix:
            for sequence, length in enumerate((case.prefix, case.prefix // 2 + 3, 5)):
                trial.chunks(sequence, [CHUNK] * (length // CHUNK) + [length % CHUNK] * bool(length % CHUNK))
        return trial

    def alone(self, case: OpCase) -> Outputs:
        """Every row in a Step of its own."""
        if case.name not in self._alone:
            self._alone[case.name] = _serial(self.trial(case))
        return self._alone[case.name]

    def right(self, case: OpCase) -> Outputs:
        """The oracle's outputs."""
        if case.name not in self._right:
            self._right[case.name] = _serial(self.trial(case, self.oracle))
        return self._right[case.name]

    def close(self) -> None:
        """Free the devices."""
        self.session.close()
        self.oracle.close()


def _serial(trial: Trial[Any]) -> Outputs:
    for sequence in range(len(trial.outputs)):
        for _ in range(NEW):
            trial.feed("rows", [Part(sequence, 1)])
    return trial.outputs


def _mixed(trial: Trial[Any], count: int) -> None:
    """All sequences to their ends in Steps of at most `count` rows; longer segments end in a row that is wrong."""
    left = [NEW] * len(trial.outputs)
    turn = 0
    while any(left):
        room, parts = count, list[Part]()
        # Another sequence comes first each time, and the order of slots changes with it.
        for offset in range(len(left)):
            sequence = (turn + offset) % len(left)
            share = max(1, room // (len(left) - offset)) if room else 0
            if not left[sequence] or not share:
                continue
            wrong = 1 if share > 2 else 0
            right = min(left[sequence], share - wrong)
            parts.append(Part(sequence, right, wrong))
            left[sequence] -= right
            room -= right + wrong
        trial.feed("rows", parts)
        turn += 1


def _must_equal(got: Outputs, alone: Outputs, from_position: int = 0) -> None:
    """Bit for bit, wherever both have an output."""
    for sequence, (mine, theirs) in enumerate(zip(got, alone, strict=True)):
        for position in sorted(set(mine) & set(theirs)):
            if position >= from_position:
                assert mine[position].tobytes() == theirs[position].tobytes(), (
                    f"sequence {sequence}, position {position}: differs by"
                    f" {np.abs(mine[position] - theirs[position]).max()} from the same row alone"
                )


def _must_be_near(got: Outputs, right: Outputs, tolerance: float) -> None:
    for sequence, (mine, theirs) in enumerate(zip(got, right, strict=True)):
        assert mine, "the trial gave no output"
        for position, row in mine.items():
            bound = tolerance * max(1.0, float(np.abs(theirs[position]).max()))
            error = float(np.abs(row.astype(np.float64) - theirs[position]).max())
            assert error <= bound, f"sequence {sequence}, position {position}: off by {error}, allowed is {bound}"


class BackendContract:
    """The tests. Class attributes say what a backend promises."""

    backend: ClassVar[Backend]
    """The backend under test."""
    settings: ClassVar[BackendSettings] = BackendSettings()
    """What it is opened with."""
    tolerance: ClassVar[float] = 2e-5
    """Largest error against float64, as a share of the largest right value of the row (or of 1 when that is less)."""

    @pytest.fixture(scope="class")
    @classmethod
    def bench(cls) -> Iterator[Bench]:
        bench = Bench(cls.backend, cls.settings)
        yield bench
        bench.close()

    # ---- operations ------------------------------------------------------------------------------------------

    @_every_case
    def test_rows_agree_with_the_reference(self, bench: Bench, case: OpCase) -> None:
        """Prefixes by chunks and rows one by one give what the composed operations give in float64.

        Fix: begin with `tensorfold.compute.composed`, and compare the operation that the case names with it.
        """
        _must_be_near(bench.alone(case), bench.right(case), self.tolerance)

    @_every_case
    def test_chunks_agree_with_the_reference(self, bench: Bench, case: OpCase) -> None:
        """Chunks of every size give what rows give, within the tolerance.

        Fix: look at the chunk kernel of the operation that the case names; sizes are no multiples of a tile.
        """
        trial, right = bench.trial(case, prefix=False), bench.trial(case, bench.oracle, prefix=False)
        for sequence in range(3):
            trial.chunks(sequence, COUNTS[sequence::3])
            right.feed("rows", [Part(sequence, sum(COUNTS[sequence::3]))])
        _must_be_near(trial.outputs, right.outputs, self.tolerance)

    @_every_case
    @pytest.mark.parametrize("count", COUNTS)
    def test_rows_do_not_see_each_other(self, bench: Bench, case: OpCase, count: int) -> None:
        """The bits of a row are the same in every company, and after rows that were rolled back.

        Fix: choose no kernel by the number of rows, and reduce in fixed blocks; pad rows to a fixed tile.
        """
        trial = bench.trial(case)
        _mixed(trial, count)
        _must_equal(trial.outputs, bench.alone(case))

    def test_chunks_equal_rows_where_that_is_promised(self, bench: Bench) -> None:
        """Where a backend declares `chunk_equals_rows` for a case's states, both kinds give the same bits.

        Fix: let `chunk_equals_rows` be false for these states, or use one kernel for both kinds.
        """
        for case in (*PURE_CASES, *STATE_CASES):
            geometry = Geometry(vocabulary=2, hidden=8, layers=1, window=400, states=case.states, stop_ids=frozenset())
            if not bench.session.chunk_equals_rows(geometry):
                continue
            chunks, rows = bench.trial(case, prefix=False), bench.trial(case, prefix=False)
            for sequence in range(3):
                chunks.chunks(sequence, COUNTS[sequence::3])
                for _ in range(sum(COUNTS[sequence::3])):
                    rows.feed("rows", [Part(sequence, 1)])
            _must_equal(chunks.outputs, rows.outputs)

    # ---- states ----------------------------------------------------------------------------------------------

    @_every_state
    def test_a_commit_keeps_any_number_of_rows(self, bench: Bench, case: OpCase) -> None:
        """Of four open rows none to all are kept, and what follows has the bits of a serial run.

        Fix: in `StateStore.commit`, keep the first `length - start` open rows, and forget the others.
        """
        trial = bench.trial(case)
        for kept in range(5):
            opened = Part(0, 4)
            trial.feed("rows", [opened], commit=False)
            trial.commit(opened, kept)
        trial.feed("rows", [Part(0, 2)])
        _must_equal(trial.outputs, bench.alone(case))

    @_every_state
    def test_a_sequence_goes_on_in_another_slot(self, bench: Bench, case: OpCase) -> None:
        """Copied pages and saved states give the same bits elsewhere, and stay apart from where they came from.

        Fix: let `save` copy the fixed-size states, and `copy_page` every state of the table.
        """
        trial = bench.trial(case)
        trial.feed("rows", [Part(0, 3)])
        trial.clear(2)
        trial.copy(0, 2)
        trial.feed("rows", [Part(0, 2), Part(2, 4)])
        trial.feed("rows", [Part(0, 3)])
        alone = bench.alone(case)
        _must_equal([trial.outputs[0], trial.outputs[2]], [alone[0], alone[0]])

    @_every_state
    def test_a_sequence_goes_through_the_host(self, bench: Bench, case: OpCase) -> None:
        """Exported pages and states give the same bits in another store.

        Fix: export the stored bits exactly, and import them without a conversion.
        """
        first, second = bench.trial(case), bench.trial(case, prefix=False)
        first.feed("rows", [Part(0, 3)])
        second.receive(first, 0, 1)
        second.feed("rows", [Part(1, 5)])
        _must_equal([second.outputs[1]], [bench.alone(case)[0]])

    @_every_state
    def test_a_cleared_slot_begins_anew(self, bench: Bench, case: OpCase) -> None:
        """What a sequence leaves in pages and slots, not even NaN, is seen by the next one.

        Fix: let `reset` zero the slot's states, and mask what lies behind a length instead of multiplying it by zero.
        """
        trial = bench.trial(case)
        trial.spoil(0)
        with np.errstate(all="ignore"):
            trial.feed("rows", [Part(0, 5)])
            trial.feed("rows", [Part(0, 3)], commit=False)
        trial.clear(0)
        trial.mend(0)
        length = case.prefix
        trial.chunks(0, [CHUNK] * (length // CHUNK) + [length % CHUNK])
        # One by one: each row reads pages in which the rows after it still hold what was left there.
        for _ in range(NEW):
            trial.feed("rows", [Part(0, 1)])
        _must_equal(trial.outputs[:1], bench.alone(case)[:1], from_position=case.prefix)

    def test_a_group_is_committed_by_itself(self, bench: Bench) -> None:
        """A commit of one group leaves the rows of the other open.

        Fix: keep open rows by (slot, group).
        """
        case = next(each for each in STATE_CASES if each.name == "recent of two groups")
        trial = bench.trial(case)
        opened = Part(0, 3)
        trial.feed("rows", [opened], commit=False)
        trial.commit(opened, 0, ["main"])
        trial.commit(opened, 3, ["draft"])
        trial.feed("rows", [Part(0, 1)])
        # Three rows on in the draft group; the main group still ends where the prefix did.
        width, position = 3, trial.length(0) - 1
        main, draft = trial.outputs[0][position][: 3 * width], trial.outputs[0][position][3 * width :]
        alone = bench.alone(case)[0]
        assert draft.tobytes() == alone[position][3 * width :].tobytes()
        assert main[:width].tobytes() == alone[case.prefix][:width].tobytes()

    def test_the_store_counts_its_bytes(self, bench: Bench) -> None:
        """A store holds what its pages and slots were said to take.

        Fix: let `page_bytes` say what one page or slot really takes.
        """
        states: Mapping[str, StateSpec] = {
            "kv": KV(2, 8, 16),
            "near": KV(1, 8, 8, window=20),
            "latent": Latent(16, 8),
            "index": IndexKeys(8, 4),
            "conv": Conv(5, 4),
            "recent": Recent(7, 3),
            "recurrent": Recurrent((2, 4, 8)),
        }
        pages = {TableKey("main", None): 3, TableKey("main", 20): 2}
        store = bench.session.store(states, pages, 4)
        expected = sum(
            bench.session.page_bytes(spec)
            * (pages[TableKey.of(spec)] if isinstance(spec, KV | Latent | IndexKeys) else 4)
            for spec in states.values()
        )
        assert store.bytes == expected
        assert all(bench.session.page_bytes(spec) > 0 for spec in states.values())

    # ---- the session -----------------------------------------------------------------------------------------

    def test_arrays_come_back_as_they_went(self, bench: Bench) -> None:
        """Floats, integers and an empty array survive the way to the device and back.

        Fix: upload floats and integers as they are, and download float32.
        """
        floats = np.asarray([[0.5, -1.25], [3.0, 1e-3]], dtype=np.float32)
        assert np.array_equal(bench.session.numpy(bench.session.array(floats)), floats)
        ids = np.asarray([0, 7, 49151], dtype=np.int32)
        assert np.array_equal(bench.session.numpy(bench.session.array(ids)), ids)
        assert bench.session.numpy(bench.session.array(floats)).dtype == np.float32

    def test_an_uploaded_array_is_a_copy(self, bench: Bench) -> None:
        """What the host writes afterwards does not reach the device.

        Fix: copy in `array`.
        """
        values = np.ones((4, 16), dtype=np.float32)
        uploaded = bench.session.array(values)
        values[:] = 5.0
        assert np.array_equal(bench.session.numpy(uploaded), np.ones((4, 16)))

    def test_sampling_is_the_shared_rule(self, bench: Bench) -> None:
        """Every draw equals that of `compute.sampling` over the downloaded logits.

        Fix: call `tensorfold.compute.sampling.draw_rows` on the downloaded rows, and replace it only by what gives the
        same bits.
        """
        rng = np.random.default_rng(3)
        logits = bench.session.array(rng.normal(0, 3, (4, 301)).astype(np.float32))
        rules = [
            SamplingRule(temperature=0.0),
            SamplingRule(),
            SamplingRule(temperature=0.7, top_k=20, top_p=0.9, min_p=0.02),
            SamplingRule(repetition_penalty=1.3, presence_penalty=0.5, logit_bias=((7, 4.0),)),
        ]
        allowed = rng.random(301) < 0.5
        draws = [
            Draw(
                row=(number * 3) % 4,
                key=1234 + number,
                position=50 + number,
                rule=rule,
                allowed=allowed if number % 2 else None,
                counts={3: 2, 7: 1},
                logprobs=3,
            )
            for number, rule in enumerate(rules * 2)
        ]
        assert bench.session.sample(logits, draws) == draw_rows(bench.session.numpy(logits), draws)

    def test_the_session_describes_itself(self, bench: Bench) -> None:
        """Device, type, numerics, chunk and memory are said, and the numerics name the type.

        Fix: name the dtype in `numerics`, and report memory in bytes.
        """
        session = bench.session
        memory = session.memory()
        assert session.device and session.dtype in session.numerics
        assert session.chunk > 0
        assert 0 < memory.available <= memory.total
        assert self.backend.name and self.backend.probe().score >= 0

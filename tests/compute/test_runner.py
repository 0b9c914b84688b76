"""The Runner over a family with every kind of state: open rows, forks, snapshots, pages and their limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import HiddenRows, Runner
from tensorfold.compute.sampling import draw_row
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.sampling import Draw, SamplingRule
from tensorfold.contracts.states import PAGE
from tensorfold.contracts.step import Kind, Segment
from tensorfold.errors import BackendError, OutOfPages
from tensorfold.testing.fake_family import FakeFamily, fake_config, fake_decoder
from tensorfold.testing.reference import ReferenceBackend

CONFIG = fake_config()
GEOMETRY = FakeFamily().geometry(CONFIG)
PROMPT = tuple(int(token) for token in np.random.default_rng(3).integers(2, GEOMETRY.vocabulary, 150))


@pytest.fixture
def session() -> Iterator[Session[Any]]:
    session = ReferenceBackend().open(BackendSettings())
    yield session
    session.close()


def make(session: Session[Any], *, lanes: int = 4, identity: str = "weights", share: float = 1.0) -> Runner[Any]:
    plan = plan_memory(GEOMETRY, session, lanes=lanes, budget=1 << 30)
    pages = {key: max(1, int(count * share)) for key, count in plan.pages.items()}
    decoder = fake_decoder(session.packer, CONFIG)
    return Runner(decoder, session, GEOMETRY, lanes=lanes, pages=pages, identity=identity)


@pytest.fixture
def runner(session: Session[Any]) -> Runner[Any]:
    return make(session)


def slot_of(runner: Runner[Any]) -> int:
    slot = runner.acquire()
    assert slot is not None
    return slot


def feed(runner: Runner[Any], slot: int, tokens: tuple[int, ...], kind: Kind = "rows") -> NDArray[np.float32]:
    """Run and keep these tokens, the draft head's states too; the last row's logits."""
    segment = Segment(slot, tokens, runner.length(slot), kind=kind)
    output = runner.forward([segment])
    logits: NDArray[np.float32] = runner.logits(output, [output.rows - 1])[0]
    runner.commit(slot, segment.start + len(tokens))
    head = Segment(slot, tokens, runner.length(slot, "draft"), want="none", kind=kind)
    runner.draft([head], [HiddenRows(output, 0, len(tokens))])
    runner.commit(slot, head.start + len(tokens), "draft")
    return logits


def test_a_fork_goes_on_as_its_origin_and_neither_sees_the_other(runner: Runner[Any]) -> None:
    """Forked in the middle of a page, both continue with the bits that one sequence alone would have."""
    origin = slot_of(runner)
    feed(runner, origin, PROMPT[:100], "chunk")
    copy = runner.fork(origin)
    assert copy is not None
    other = tuple(reversed(PROMPT[100:120]))
    mixed = [feed(runner, copy, other), feed(runner, origin, PROMPT[100:120])]
    mixed += [feed(runner, copy, (5,)), feed(runner, origin, (5,))]
    alone = make(runner._session)
    for tokens, after_20, after_21 in ((other, mixed[0], mixed[2]), (PROMPT[100:120], mixed[1], mixed[3])):
        slot = slot_of(alone)
        feed(alone, slot, PROMPT[:100], "chunk")
        assert np.array_equal(feed(alone, slot, tokens), after_20)
        assert np.array_equal(feed(alone, slot, (5,)), after_21)


def test_a_fork_shares_pages_until_one_is_written(runner: Runner[Any]) -> None:
    """Whole pages are never copied, the one that is half full only when somebody writes into it."""
    origin = slot_of(runner)
    feed(runner, origin, PROMPT[:100], "chunk")
    before = runner.memory().positions_free
    copy = runner.fork(origin)
    assert copy is not None
    assert runner.memory().positions_free == before
    feed(runner, copy, (5,))
    assert runner.memory().positions_free == before - PAGE
    feed(runner, origin, (5,))
    assert runner.memory().positions_free == before - PAGE
    runner.release(copy)
    assert runner.memory().positions_free == before


def test_there_is_no_fork_without_a_lane(session: Session[Any]) -> None:
    """With every lane taken the answer is None, and nothing is held."""
    runner = make(session, lanes=1)
    slot = slot_of(runner)
    feed(runner, slot, PROMPT[:10])
    assert runner.fork(slot) is None
    assert runner.acquire() is None
    runner.release(slot)
    assert runner.memory().lanes_free == 1
    assert runner.memory().positions_free == runner.memory().positions


def test_a_snapshot_survives_the_way_to_the_host_and_into_another_runner(session: Session[Any]) -> None:
    """Exported and imported elsewhere, a sequence goes on with the same bits, its draft head too."""
    first, second = make(session), make(session)
    slot = slot_of(first)
    feed(first, slot, PROMPT[:130], "chunk")
    kept = first.snapshot(slot)
    exported = first.export(kept)
    expected = feed(first, slot, PROMPT[130:])
    first.drop(kept)
    imported = second.import_(exported)
    assert imported.length == 130
    assert imported.bytes > 0
    target = slot_of(second)
    feed(second, target, PROMPT[:7])
    second.restore(target, imported)
    second.drop(imported)
    assert np.array_equal(feed(second, target, PROMPT[130:]), expected)
    second.release(target)
    assert second.memory().positions_free == second.memory().positions


def test_a_snapshot_of_other_weights_is_refused(session: Session[Any]) -> None:
    """States fit only what computed them."""
    first, second = make(session), make(session, identity="others")
    slot = slot_of(first)
    feed(first, slot, PROMPT[:3])
    with pytest.raises(BackendError, match="does not fit"):
        second.restore(slot_of(second), first.snapshot(slot))


def test_a_step_without_room_changes_nothing(session: Session[Any]) -> None:
    """OutOfPages leaves every sequence as it was, and what fits still runs."""
    runner = make(session, lanes=2, share=0.2)
    slot = slot_of(runner)
    feed(runner, slot, PROMPT[:40])
    room = runner.memory().positions_free
    with pytest.raises(OutOfPages):
        runner.forward([Segment(slot, PROMPT[:100] * 6, 40, kind="chunk")])
    assert runner.length(slot) == 40
    assert runner.memory().positions_free == room
    feed(runner, slot, PROMPT[40:50])
    assert runner.length(slot) == 50


def test_abandoned_rows_leave_no_trace(runner: Runner[Any]) -> None:
    """A step that nobody commits is dropped, and the sequence goes on with the same bits."""
    slot, other = slot_of(runner), slot_of(runner)
    for each in (slot, other):
        feed(runner, each, PROMPT[:70], "chunk")
    runner.forward([Segment(slot, (9, 8, 7), 70, "all")])
    runner.abandon(slot)
    assert np.array_equal(feed(runner, slot, PROMPT[70:80]), feed(runner, other, PROMPT[70:80]))


def test_more_rows_than_a_block_are_sampled_as_one_by_one(runner: Runner[Any]) -> None:
    """Draws over 150 wanted rows read the same logits, block by block, as a single row would."""
    slot = slot_of(runner)
    output = runner.forward([Segment(slot, PROMPT, 0, "all", "chunk")])
    assert output.rows == 150
    logits = runner.logits(output, range(150))
    rows = [149, 0, 64, 63, 149, 70]
    draws = [Draw(row=row, key=number, position=row, rule=SamplingRule()) for number, row in enumerate(rows)]
    drawn = runner.sample(output, draws)
    assert [each.token for each in drawn] == [draw_row(logits[draw.row], draw).token for draw in draws]
    runner.commit(slot, 150)


@pytest.mark.parametrize(
    ("segments", "problem"),
    [
        ([Segment(0, (1,), 0), Segment(1, (1,), 0, kind="chunk")], "one chunk segment"),
        ([Segment(0, (1,), 0, kind="chunk"), Segment(1, (1,), 0, kind="chunk")], "one chunk segment"),
        ([Segment(0, (1,), 0), Segment(0, (2,), 1)], "same slot"),
        ([Segment(0, (1,), 3)], "begins at 3"),
        ([Segment(0, (), 0)], "0 tokens"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(runner: Runner[Any], segments: list[Segment], problem: str) -> None:
    """The rules of a step hold before anything is computed."""
    assert [slot_of(runner), slot_of(runner)] == [0, 1]
    with pytest.raises(BackendError, match=problem):
        runner.forward(segments)


def test_open_rows_must_be_committed_first(runner: Runner[Any]) -> None:
    """Neither a forward nor a snapshot nor a commit outside the open rows is possible before the commit."""
    slot = slot_of(runner)
    runner.forward([Segment(slot, (1, 2), 0)])
    with pytest.raises(BackendError, match="open rows"):
        runner.forward([Segment(slot, (3,), 0)])
    with pytest.raises(BackendError, match="open rows"):
        runner.snapshot(slot)
    with pytest.raises(BackendError, match="none of their ends"):
        runner.commit(slot, 3)
    runner.commit(slot, 1)
    assert runner.length(slot) == 1


def fill(runner: Runner[Any], slot: int, positions: int) -> None:
    """Run so many positions, chunk by chunk as prompts are run."""
    while (left := positions - runner.length(slot)) > 0:
        feed(runner, slot, (5,) * min(left, runner.chunk), "chunk")


def test_room_is_what_one_more_sequence_could_be_given(session: Session[Any]) -> None:
    """A new sequence of that many positions fits, and one of a page more does not."""
    runner = make(session, lanes=2, share=0.75)
    assert runner.room() == GEOMETRY.window
    fill(runner, slot_of(runner), 400)
    room = runner.room()
    assert 0 < room < GEOMETRY.window
    slot = slot_of(runner)
    fill(runner, slot, room)
    with pytest.raises(OutOfPages):
        feed(runner, slot, (5,) * (PAGE + 1), "chunk")

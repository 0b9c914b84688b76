"""The cache of kept prefixes against a list of them: what is found, what is given up first, and that nothing leaks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tensorfold.chat.plain import PlainParser
from tensorfold.compute.runner import Runner
from tensorfold.contracts.sampling import SamplingRule
from tensorfold.contracts.states import PAGE, TableKey
from tensorfold.contracts.step import Segment
from tensorfold.engine.gates import GateSet
from tensorfold.engine.job import Job
from tensorfold.engine.kept import KeptPrefix, PrefixCache, keep_starts, shares
from tensorfold.engine.limits import ReplyLimit
from tensorfold.engine.plan import Chunk, chunk_plan
from tensorfold.ir import Request, TokensPrompt
from tensorfold.testing.scripted import scripted_geometry, scripted_runner
from tensorfold.testing.toy_tokenizer import ToyTokenizer

OPEN, STEP, POSITIONS = 9, 300, 3072
TOKENIZER = ToyTokenizer()
PIECES = {
    "system": (OPEN, *[1] * 299),
    "short": (OPEN, *[2] * 40),
    "long": (OPEN, *[3] * 500),
    "other": (OPEN, *[4] * 320),
    "end": (OPEN, 5),
}


def job(ids: tuple[int, ...]) -> Job:
    markers = tuple(place for place, token in enumerate(ids) if token == OPEN)
    return Job(
        request=Request(id="r", prompt=TokensPrompt(ids)),
        ids=ids,
        chunks=chunk_plan(len(ids), markers, STEP),
        markers=markers,
        text=None,
        vocabulary=99,
        rule=SamplingRule(),
        key=0,
        limit=ReplyLimit(8, "length"),
        ends=frozenset(),
        stop_ids=frozenset(),
        spelled=frozenset(),
        gates=GateSet(),
        tokenizer=TOKENIZER,
        parser=PlainParser,
        drafting=None,
    )


def runner() -> Runner[Any]:
    geometry = scripted_geometry(vocabulary=99, window=POSITIONS)
    return scripted_runner([], geometry, lanes=2, chunk=STEP, positions=POSITIONS, equal=False)


class Caches(RuleBasedStateMachine):
    """Prompts made of common pieces are computed from what is kept, and kept; room is made now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = runner()
        self.cache = PrefixCache(self.runner, None)
        self.model: list[tuple[tuple[int, ...], tuple[Chunk, ...], bool]] = []
        """Ids, chunks and whether it is a first message; the least recently used first."""

    def _evict(self) -> None:
        place = next((place for place, each in enumerate(self.model) if not each[2]), 0)
        del self.model[place]

    def _expected(self, wanted: Job) -> int:
        fitting = [
            len(ids)
            for ids, chunks, _ in self.model
            if len(ids) < len(wanted.ids) and wanted.ids[: len(ids)] == ids and wanted.chunks[: len(chunks)] == chunks
        ]
        return max(fitting, default=0)

    @rule(names=st.lists(st.sampled_from(sorted(PIECES)), min_size=1, max_size=4))
    def prompt(self, names: list[str]) -> None:
        wanted = job(tuple(token for name in names for token in PIECES[name]))
        keep = self.cache.enter(wanted)
        assert len(keep) <= 4 and keep <= {chunk.start for chunk in wanted.chunks}
        found = self.cache.find(wanted)
        assert (0 if found is None else found.length) == self._expected(wanted)
        # A kept start within a page costs a copy of it when the prompt goes on: four at most.
        missing = {
            TableKey("main", None): len(wanted.ids) // PAGE + 2 + 4 - self.runner.memory().positions_free // PAGE
        }
        missing = {key: count for key, count in missing.items() if count > 0}
        before = len(self.cache)
        if missing and not self.cache.make_room(missing, but=found):
            assert len(self.cache) == before, "what cannot be made is not begun"
            return
        kept_back = None if found is None else (found.ids, found.chunks)
        while len(self.model) > len(self.cache):
            others = [each for each in self.model if (each[0], each[1]) != kept_back]
            gone = next((each for each in others if not each[2]), None) or others[0]
            self.model.remove(gone)
        slot = self.runner.acquire()
        assert slot is not None
        start = 0
        if found is not None:
            self.runner.restore(slot, found.snapshot)
            self.cache.use(found)
            start = found.length
            self._touch(found.ids, found.chunks)
        self._compute(wanted, slot, start, keep)
        self.runner.release(slot)

    def _compute(self, wanted: Job, slot: int, start: int, keep: frozenset[int]) -> None:
        row = b""
        for chunk in wanted.chunks:
            if chunk.end <= start:
                continue
            ids = wanted.ids[chunk.start : chunk.end]
            output = self.runner.forward([Segment(slot, ids, chunk.start, kind="chunk")])
            row = self.runner.logits(output, [0]).tobytes()
            self.runner.commit(slot, chunk.end)
            if chunk.end in keep:
                self.cache.keep(wanted, slot, chunk.end)
                chunks = tuple(each for each in wanted.chunks if each.end <= chunk.end)
                self._touch(wanted.ids[: chunk.end], chunks, first=wanted.markers[1:2] == (chunk.end,))
        # The last row's logits are a hash of all tokens before it: what was resumed is what would have been computed.
        assert row == self._fresh(wanted)

    def _fresh(self, wanted: Job) -> bytes:
        own = scripted_runner([], scripted_geometry(vocabulary=99, window=POSITIONS), lanes=1)
        slot = own.acquire()
        assert slot is not None
        output = own.forward([Segment(slot, wanted.ids, 0, kind="chunk")])
        return own.logits(output, [0]).tobytes()

    def _touch(self, ids: tuple[int, ...], chunks: tuple[Chunk, ...], first: bool = False) -> None:
        there = next((each for each in self.model if each[0] == ids), None)
        if there is not None:
            self.model.remove(there)
            first = there[2] if there[1] == chunks else first
        self.model.append((ids, chunks, first))

    @rule()
    def room(self) -> None:
        """As when a step finds no page."""
        free = self.runner.memory().positions_free
        assert self.cache.free_some() == bool(self.model)
        while len(self.model) > len(self.cache):
            self._evict()
        assert not self.model or self.runner.memory().positions_free > free

    @invariant()
    def it_holds_what_the_list_holds_in_the_same_order(self) -> None:
        assert [(kept.ids, kept.chunks, kept.keeping == "system") for kept in self.cache.held] == self.model

    @invariant()
    def nothing_else_holds_memory(self) -> None:
        memory = self.runner.memory()
        assert memory.positions_free + memory.positions_spare == memory.positions
        assert memory.lanes_free == 2

    def teardown(self) -> None:
        self.cache.close()
        assert self.runner.memory().positions_free == POSITIONS


TestCaches = Caches.TestCase
TestCaches.settings = settings(max_examples=40, stateful_step_count=12)


# ---- which starts are kept --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "common", "starts"),
    [
        (["short", "end"], 0, set[int]()),
        (["system", "other", "end"], 0, {300, 600}),
        (["system", "long", "other", "end"], 0, {300, 900}),
        (["system", "long", "other", "end"], 800, {300, 600, 900}),
        (["system", "long", "other", "end"], 1101, {300, 900}),
    ],
)
def test_a_prompt_keeps_the_starts_where_others_will_begin(names: list[str], common: int, starts: set[int]) -> None:
    """The end of the first message, of what is shared, the last message's opening and the last chunk: at most four."""
    ids = tuple(token for name in names for token in PIECES[name])
    assert keep_starts(job(ids), common) == starts


def test_two_plans_share_the_starts_that_they_come_to_alike() -> None:
    one, other = (Chunk(0, 300), Chunk(300, 600), Chunk(600, 640)), (Chunk(0, 300), Chunk(300, 580), Chunk(580, 900))
    assert shares(one, other, 620) == 300
    assert shares(one, other, 299) == 0
    assert shares(one, one, 620) == 600


def test_the_newest_prefix_is_dropped_when_it_alone_is_too_large() -> None:
    own = runner()
    cache = PrefixCache(own, 10)
    wanted = job((*PIECES["system"], *PIECES["end"]))
    slot = own.acquire()
    assert slot is not None
    own.forward([Segment(slot, wanted.ids[:300], 0, kind="chunk")])
    own.commit(slot, 300)
    cache.keep(wanted, slot, 300)
    assert cache.held == ()
    own.release(slot)
    assert own.memory().positions_free == POSITIONS


def test_a_shelf_is_asked_only_for_something_longer() -> None:
    """What it brings is kept as if it had been computed."""
    asked: list[int] = []

    class Shelf:
        tokens = bytes = 0

        def put(self, kept: KeptPrefix, runner: Runner[Any]) -> None:
            return

        def find(self, job: Job, longer_than: int, runner: Runner[Any]) -> KeptPrefix | None:
            asked.append(longer_than)
            return None

        def closing(self) -> None:
            return

        def close(self) -> None:
            return

    own = runner()
    cache = PrefixCache(own, None, shelf=Shelf())
    wanted = job((*PIECES["system"], *PIECES["end"]))
    assert cache.fetch(wanted, cache.find(wanted)) is None
    slot = own.acquire()
    assert slot is not None
    own.forward([Segment(slot, wanted.ids[:300], 0, kind="chunk")])
    own.commit(slot, 300)
    cache.keep(wanted, slot, 300)
    found = cache.find(wanted)
    assert cache.fetch(wanted, found) is found
    assert asked == [0, 300]

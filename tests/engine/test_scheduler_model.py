"""The scheduler against a plain list of requests: whose turn it is, who gets a lane, who yields, and that all end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tensorfold.chat.plain import PlainFormat
from tensorfold.contracts.sampling import Drawn
from tensorfold.contracts.step import Segment
from tensorfold.engine.active import ActiveRequest, Entry
from tensorfold.engine.admission import Admission, no_gates
from tensorfold.engine.capacity import Capacity
from tensorfold.engine.events import LocalStream
from tensorfold.engine.kept import PrefixCache
from tensorfold.engine.lanes import Lanes
from tensorfold.engine.policies import PASSES, DefaultPolicy
from tensorfold.engine.scheduler import ROUNDS, ChunkTurn, RowsTurn, Scheduler
from tensorfold.engine.settings import EngineSettings
from tensorfold.engine.sharing import Sharing
from tensorfold.ir import Limits, Request, TokensPrompt
from tensorfold.testing.scripted import scripted_geometry, scripted_runner
from tensorfold.testing.toy_tokenizer import ToyPrompts, ToyTokenizer

LANES, CHUNK, SHARE, TOGETHER = 3, 8, 0.25, 2
CHUNK_SECONDS, ROUND_SECONDS = 1.0, 0.1
TOKENIZER = ToyTokenizer()


class NoStream:
    """Nobody listens."""

    cancelled = False

    def post(self, event: Any) -> None:
        return


@dataclass
class Modelled:
    """A request as the model sees it."""

    name: str
    background: bool
    arrived: int
    prompt: int
    reply: int
    left: int
    """Prompt tokens to compute."""
    passed: int = 0
    admitted: int | None = None
    """When it got its lane; None: it has none."""
    kept: int = 0
    """Reply tokens."""

    @property
    def running(self) -> bool:
        return self.admitted is not None and self.left == 0


class Schedules(RuleBasedStateMachine):
    """Requests come; turns are taken and carried out on a real runner."""

    def __init__(self) -> None:
        super().__init__()
        geometry = scripted_geometry(vocabulary=TOKENIZER.size, window=512)
        self.runner = scripted_runner([], geometry, lanes=LANES, chunk=CHUNK)
        prefixes = PrefixCache(self.runner, 0)
        self.lanes = Lanes(self.runner, Capacity(self.runner, 64), prefixes)
        self.scheduler = Scheduler(self.lanes, Sharing(prefixes), DefaultPolicy(), SHARE, most=TOGETHER)
        self.admission = Admission(
            prompts=ToyPrompts(TOKENIZER),
            tokenizer=TOKENIZER,
            chat=PlainFormat(),
            geometry=geometry,
            window=512,
            chunk=CHUNK,
            settings=EngineSettings(),
            drafting=None,
            gates=no_gates,
        )
        self.clock = 0
        self.entries: dict[str, Entry] = {}
        self.model: dict[str, Modelled] = {}
        self.owed = 0.0
        self.rounds = 0
        self.order: list[str] = []
        """Running replies, the one that has waited longest first."""

    # ---- what happens --------------------------------------------------------------------------------------

    @rule(
        prompt=st.integers(1, 60),
        reply=st.integers(2, 12),
        priority=st.sampled_from(("foreground", "foreground", "background")),
    )
    def come(self, prompt: int, reply: int, priority: Literal["foreground", "background"]) -> None:
        self.clock += 1
        ids = tuple(self.clock % 90 + 2 for _ in range(prompt))
        request = Request(
            id="r", prompt=TokensPrompt(ids), limits=Limits(max_tokens=reply, ignore_eos=True), priority=priority
        )
        active = ActiveRequest(self.clock, self.admission.job(request), cast("LocalStream", NoStream()), self.clock)
        (entry,) = active.entries
        self.scheduler.add(active)
        self.entries[entry.id] = entry
        self.model[entry.id] = Modelled(entry.id, priority == "background", self.clock, prompt, reply, prompt)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """A client goes away, in whatever state its request is."""
        self._end(data.draw(st.sampled_from(sorted(self.model))))

    @precondition(lambda self: self.model)
    @rule(count=st.integers(1, 12))
    def turns(self, count: int) -> None:
        for _ in range(count):
            if self.model:
                self._turn()

    def _turn(self) -> None:
        self.clock += 1
        expected = self._expected()
        turn = self.scheduler.next(self.clock)
        match turn:
            case ChunkTurn(entry):
                assert expected == ("chunk", (entry.id,))
                self._chunk(entry)
            case RowsTurn(entries):
                assert expected == ("rows", tuple(entry.id for entry in entries))
                self._rows(entries)
            case None:
                raise AssertionError("somebody is there, and nobody's turn it is")

    # ---- the model -----------------------------------------------------------------------------------------

    def _expected(self) -> tuple[str, tuple[str, ...]]:
        if self.order and self.owed > 0:
            return self._round()
        chosen = self._next_prompt()
        if chosen is not None:
            return "chunk", (chosen.name,)
        return self._round()

    def _round(self) -> tuple[str, tuple[str, ...]]:
        turn = self.order[:TOGETHER]
        if len(self.order) > TOGETHER:
            self.order = [*self.order[TOGETHER:], *turn]
        return "rows", tuple(turn)

    def _next_prompt(self) -> Modelled | None:
        waiting = sorted((each for each in self.model.values() if not each.running), key=self._rank)
        barred = False
        for each in waiting:
            if each.admitted is None and (barred or not self._admit(each)):
                barred = True
                continue
            for other in self.model.values():
                if not other.running and other is not each:
                    other.passed += 1
            each.passed = 0
            return each
        return None

    @staticmethod
    def _rank(each: Modelled) -> tuple[bool, bool, int, int]:
        starved = each.passed >= PASSES
        background = each.background and each.passed < 64
        return background, not starved, -each.passed if starved else each.left, each.arrived

    def _admit(self, each: Modelled) -> bool:
        holders = [other for other in self.model.values() if other.admitted is not None]
        if len(holders) == LANES:
            victims = [other for other in holders if other.background]
            if each.background or not victims:
                return False
            victim = max(victims, key=lambda other: other.admitted or 0)
            victim.admitted, victim.left, victim.passed = None, victim.prompt, 0
            if victim.name in self.order:
                self.order.remove(victim.name)
        each.admitted = self.clock
        return True

    # ---- carrying a turn out -------------------------------------------------------------------------------

    def _chunk(self, entry: Entry) -> None:
        chunk = entry.next_chunk
        assert entry.slot is not None
        job, modelled = entry.active.job, self.model[entry.id]
        self.runner.forward([Segment(entry.slot, job.ids[chunk.start : chunk.end], chunk.start, kind="chunk")])
        self.runner.commit(entry.slot, chunk.end)
        entry.computed = chunk.end
        modelled.left -= chunk.end - chunk.start
        if entry.prompt_done:
            assert modelled.left == 0
            self._accept(entry, first=True)
            self.scheduler.run(entry)
            self.order.append(entry.id)
        self.scheduler.ran_chunk(CHUNK_SECONDS)
        self.owed, self.rounds = (SHARE * CHUNK_SECONDS if self.order else 0.0), 0

    def _rows(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            assert entry.slot is not None
            window = entry.sequence.next_window(0, 1)
            self.runner.forward([Segment(entry.slot, window.tokens, window.start)])
            self.runner.commit(entry.slot, window.start + 1)
            self._accept(entry, first=False)
            if entry.sequence.stopped is not None:
                self._end(entry.id)
        self.scheduler.ran_rows(ROUND_SECONDS)
        self.rounds += 1
        self.owed = 0.0 if self.rounds >= ROUNDS else self.owed - ROUND_SECONDS

    @staticmethod
    def _accept(entry: Entry, *, first: bool) -> None:
        window = entry.sequence.first_window() if first else entry.sequence.next_window(0, 1)
        list(entry.sequence.accept(window, [Drawn(65)]))

    def _end(self, name: str) -> None:
        self.scheduler.remove(self.entries.pop(name))
        del self.model[name]
        if name in self.order:
            self.order.remove(name)

    # ---- what always holds ---------------------------------------------------------------------------------

    @invariant()
    def everybody_is_somewhere_and_nowhere_twice(self) -> None:
        scheduler = self.scheduler
        places = Counter(entry.id for entry in (*scheduler.waiting, *scheduler.prefilling, *scheduler.running))
        assert places == Counter(self.model.keys())
        assert [entry.id for entry in scheduler.running] == self.order
        for entry in scheduler.holders:
            assert entry.slot is not None
        for entry in scheduler.waiting:
            assert entry.slot is None

    @invariant()
    def lanes_are_held_by_those_who_have_one(self) -> None:
        assert self.runner.memory().lanes_free == LANES - len(self.scheduler.holders)
        for entry in self.scheduler.holders:
            assert self.model[entry.id].admitted is not None

    def teardown(self) -> None:
        """Nobody is starved: without newcomers everything ends."""
        turns = 0
        while self.model:
            self._turn()
            turns += 1
            assert turns < 5000
        assert self.runner.memory().lanes_free == LANES
        assert self.runner.memory().positions_free == self.runner.memory().positions


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(max_examples=60, stateful_step_count=25)

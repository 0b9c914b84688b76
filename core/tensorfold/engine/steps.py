"""What prompts' chunks and rounds of replies have in common: tokens are accepted, replies settled, room is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tensorfold.compute.runner import Output, Runner
from tensorfold.contracts.sampling import Draw, Drawn
from tensorfold.engine.active import ActiveRequest, Entry
from tensorfold.engine.gates import GateSet, GateStates
from tensorfold.engine.heads import DraftHead
from tensorfold.engine.kept import PrefixCache
from tensorfold.engine.lanes import Lanes
from tensorfold.engine.roster import Roster, Totals
from tensorfold.engine.scheduler import Scheduler
from tensorfold.engine.sequence import Window
from tensorfold.errors import GenerationFailed, OutOfPages

__all__ = ["Steps", "slot_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """What a step works on. Used by the engine thread alone."""

    runner: Runner[Any]
    lanes: Lanes
    prefixes: PrefixCache
    scheduler: Scheduler
    roster: Roster
    head: DraftHead
    totals: Totals
    clock: Callable[[], float]

    def sample(
        self, output: Output[Any], draws: Sequence[Draw], before: Iterable[tuple[GateSet, GateStates]]
    ) -> list[Drawn]:
        """One token for each draw. What a gate puts in the place of one has a log-probability of its own, where those are
        asked for; `before` are each draw's gates, and their states before it.
        """
        drawn = self.runner.sample(output, draws)
        if all(draw.logprobs is None for draw in draws):
            return drawn
        put: dict[int, Draw] = {}
        for place, (draw, each, (gates, states)) in enumerate(zip(draws, drawn, before, strict=True)):
            if draw.logprobs is None or draw.forced is not None or each.problem is not None:
                continue
            token = gates.kept(states, each.token)
            if token != each.token:
                put[place] = msgspec.structs.replace(draw, forced=token)
        for place, each in zip(put, self.runner.sample(output, list(put.values())) if put else (), strict=True):
            drawn[place] = each
        return drawn

    def accept(self, entry: Entry, window: Window, drawn: Sequence[Drawn]) -> bool:
        """Walk a window and send what it gives; False: the request has failed."""
        active, sequence, totals = entry.active, entry.sequence, self.totals
        before = sequence.count
        try:
            for event in sequence.accept(window, drawn):
                active.stream.post(event)
            totals.completion_tokens += sequence.count - before
            if (position := sequence.position) > totals.longest:
                totals.longest = position
            if not active.began_reply:
                active.first_token(self.clock())
        except Exception as error:  # noqa: BLE001 (a plugin may raise anything)
            self.roster.blame([active], error, "reading its tokens")
        return not active.ended

    def settle(self, active: ActiveRequest) -> None:
        """Choices that have stopped give back their slots; when all have, the request is finished."""
        if active.ended:
            return
        for entry in active.entries:
            if entry.sequence.stopped is not None and entry.slot is not None:
                self._keep_reply(entry, entry.slot)
                self.scheduler.remove(entry)
        if active.stopped:
            self.roster.finish(active)

    def _keep_reply(self, entry: Entry, slot: int) -> None:
        """A reply that has ended may serve the conversation's next turn; its last token is in no state."""
        with self.roster.guarded("keeping its reply", [entry.active]):
            self.prefixes.keep_reply(entry.active.job, entry.sequence.sent[:-1], slot)

    def make_room(self, error: OutOfPages) -> None:
        """A step found no pages, and nothing was changed: what is kept goes first, then the newest yields."""
        if self.prefixes.free_some() or self.scheduler.forget_kept() or self.scheduler.yield_newest():
            return
        for entry in self.scheduler.holders:
            self.roster.fail(entry.active, _too_large(entry, error), "growing")


def slot_of(entry: Entry) -> int:
    """The entry's slot, which it has.

    Raises:
        GenerationFailed: it has none.
    """
    if entry.slot is None:
        raise GenerationFailed("the engine lost the slot of this reply")
    return entry.slot


def _too_large(entry: Entry, error: OutOfPages) -> GenerationFailed:
    return GenerationFailed(
        f"the state memory is full at position {entry.sequence.position} of this request, which runs alone ({error}):"
        " ask for a shorter reply, or start the server with a smaller --context or fewer --parallel lanes"
    )

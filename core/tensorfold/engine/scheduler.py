"""Whose turn it is: one prompt's chunk, or a round of all running replies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import structlog

from tensorfold.contracts.policy import Running, SchedulerPolicy, Waiting
from tensorfold.engine.active import ActiveRequest, Entry
from tensorfold.engine.lanes import Lanes
from tensorfold.engine.policies import DefaultPolicy
from tensorfold.engine.sharing import Sharing

__all__ = ["ChunkTurn", "RowsTurn", "Scheduler", "Turn"]

ROUNDS = 32
"""The most rounds of replies between two chunks, however short they are."""
LEAST = 1e-9
"""Seconds that replies get after every chunk, however short it was: one round."""
FAILED = "the scheduling policy failed, and the default one takes over"
"""A policy that failed once is not asked again: the default one is pure arithmetic and cannot fail."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkTurn:
    """The next chunk of one prompt."""

    entry: Entry


@dataclass(frozen=True, slots=True, eq=False)
class RowsTurn:
    """One round of replies."""

    entries: tuple[Entry, ...]


Turn: TypeAlias = ChunkTurn | RowsTurn


class Scheduler:
    """The entries of all requests, by what they wait for."""

    def __init__(
        self, lanes: Lanes, sharing: Sharing, policy: SchedulerPolicy, decode_share: float, *, most: int
    ) -> None:
        """`most` replies share a round."""
        self.waiting: list[Entry] = []
        """Without a slot."""
        self.prefilling: list[Entry] = []
        self.running: list[Entry] = []
        self.preemptions = 0
        """Slots taken away so far."""
        self.yields = 0
        """Of those, the ones in which a lane went to a request that came later."""
        self._lanes = lanes
        self._sharing = sharing
        self._policy = policy
        self._share = decode_share
        self._most = most
        self._owed = 0.0
        """Seconds that running replies still get before the next chunk."""
        self._rounds = 0
        self._short = False
        """Whether one has yielded its memory to the others since the last round."""
        self._requests: int | None = 0
        """That hold a slot; None: to be counted again."""

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.waiting or self.prefilling or self.running)

    @property
    def holders(self) -> tuple[Entry, ...]:
        """Entries with a slot."""
        return (*self.prefilling, *self.running)

    @property
    def requests(self) -> int:
        """How many requests hold a slot. PERF: asked for after every turn, counted when it may have changed."""
        if self._requests is None:
            self._requests = len({entry.active for entry in self.holders})
        return self._requests

    # ---- turns ---------------------------------------------------------------------------------------------

    def next(self, now: float) -> Turn | None:
        """The next step; None when nothing can run, which is so only while nobody holds a slot."""
        if self.running and (self._owed > 0 or self._short):
            return self._round()
        entry = self._next_prompt(now)
        if entry is not None:
            return ChunkTurn(entry)
        return self._round() if self.running else None

    def _round(self) -> RowsTurn:
        """The replies that have waited longest, as many as share a round."""
        self._short = False
        turn = tuple(self.running[: self._most])
        if len(self.running) > self._most:
            self.running = [*self.running[self._most :], *turn]
        return RowsTurn(turn)

    def ran_chunk(self, seconds: float) -> None:
        """A chunk took so long: running replies get their share of it, and one round at least."""
        self._owed = max(self._share * seconds, LEAST) if self.running and self._share else 0.0
        self._rounds = 0

    def ran_rows(self, seconds: float) -> None:
        """A round took so long."""
        self._rounds += 1
        self._owed = 0.0 if self._rounds >= ROUNDS else self._owed - seconds

    def _next_prompt(self, now: float) -> Entry | None:
        # The first entry that finds no room bars all newcomers behind it, so that what gets free comes to it.
        barred = False
        for entry in self._ordered():
            if entry.slot is None:
                if self._sharing.waits(entry, self.prefilling):
                    continue
                barred = barred or not self._admit(entry, now)
                if barred or entry.prompt_done:
                    continue
            for other in (*self.prefilling, *self.waiting):
                other.passed_over += 1
            entry.passed_over = 0
            return entry
        return None

    def _ordered(self) -> list[Entry]:
        entries = {entry.id: entry for entry in (*self.prefilling, *self.waiting)}
        if self._share == 0:
            # Background behind foreground here, too: else it would take back at once what it has yielded, for ever.
            return sorted(entries.values(), key=lambda entry: (entry.priority == "background", entry.active.arrived))
        views = [self._view(entry) for entry in entries.values()]
        try:
            ordered = {view.id: entries[view.id] for view in self._policy.order(views)}
            if len(ordered) != len(entries):
                raise ValueError(f"{len(entries)} prompts were to be ordered, and {len(ordered)} came back")
        except Exception:  # noqa: BLE001 (a plugin may raise anything)
            structlog.get_logger().exception(FAILED, policy=self._policy.name)
            self._policy = DefaultPolicy()
            return self._ordered()
        return list(ordered.values())

    # ---- in and out ----------------------------------------------------------------------------------------

    def add(self, active: ActiveRequest) -> None:
        """A new request; its other choices sleep until the first one's prompt is computed."""
        self.waiting.append(active.entries[0])

    def run(self, entry: Entry) -> None:
        """The entry has a slot and its first token."""
        if entry in self.prefilling:
            self.prefilling.remove(entry)
        self.running.append(entry)
        self._requests = None

    def wait(self, entry: Entry) -> None:
        """A choice whose prompt is kept waits for a lane."""
        self.waiting.append(entry)

    def remove(self, entry: Entry) -> None:
        """The entry is over; its slot is given back."""
        self._lanes.give_back(entry)
        self._requests = None
        for entries in (self.waiting, self.prefilling, self.running):
            if entry in entries:
                entries.remove(entry)
        active = entry.active
        if self._lanes.keeps(active) and not any(other.active is active for other in self.waiting):
            self._lanes.forget(active)

    def preempt(self, entry: Entry) -> None:
        """The entry yields its slot and waits to be replayed."""
        self.preemptions += 1
        self.remove(entry)
        entry.sequence.restart()
        entry.computed = entry.passed_over = 0
        self.waiting.append(entry)
        structlog.get_logger().info(
            "a reply yields its memory and will be replayed", request=entry.active.job.request.id
        )

    def _admit(self, entry: Entry, now: float) -> bool:
        """Give a waiting entry a slot, from a background reply if the policy says so."""
        while (taking := self._lanes.take(entry, self.holders, now)) != "taken":
            if taking == "no room" and self.forget_kept(but=entry.active):
                continue
            victim = self._victim(self._view(entry))
            if victim is None:
                return False
            self.yields += 1
            self.preempt(victim)
        self.waiting.remove(entry)
        self._requests = None
        (self.running if entry.prompt_done else self.prefilling).append(entry)
        if not any(other.active is entry.active for other in self.waiting):
            self._lanes.forget(entry.active)
        return True

    # ---- when memory is short ------------------------------------------------------------------------------

    def forget_kept(self, but: ActiveRequest | None = None) -> bool:
        """Give up the prompts that are kept for waiting choices, which are then computed again; False: none was."""
        forgotten = [active for active in self._lanes.kept if active is not but]
        for active in forgotten:
            self._lanes.forget(active)
            for entry in self.waiting:
                if entry.active is active:
                    entry.sequence.restart()
                    entry.computed = 0
        return bool(forgotten)

    def yield_newest(self) -> bool:
        """Make room for the older ones; False when there is but one with a slot."""
        if len(self.holders) < 2:
            return False
        self.preempt(self._victim(None) or max(self.holders, key=lambda entry: entry.admitted))
        # Else the one that yielded might take its memory back before the others use it, and so on for ever.
        self._short = True
        return True

    def _victim(self, wanting: Waiting | None) -> Entry | None:
        entries = {entry.id: entry for entry in self.holders}
        views = [Running(entry.id, entry.priority, entry.admitted, _held(entry)) for entry in entries.values()]
        try:
            chosen = self._policy.victim(views, wanting)
            return None if chosen is None else entries[chosen.id]
        except Exception:  # noqa: BLE001 (a plugin may raise anything)
            structlog.get_logger().exception(FAILED, policy=self._policy.name)
            self._policy = DefaultPolicy()
            return self._victim(wanting)

    @staticmethod
    def _view(entry: Entry) -> Waiting:
        computed = entry.computed
        # PERF: in the order of its fields, since there is one for each prompt that waits, before every chunk.
        return Waiting(
            entry.id,
            entry.priority,
            entry.active.arrived,
            entry.prompt_tokens - computed,
            entry.passed_over,
            computed > 0,
        )


def _held(entry: Entry) -> int:
    return entry.sequence.position if entry.prompt_done else entry.computed

"""Slots of the Runner: taken, forked, given back, and the prompts kept for choices that wait for one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import structlog

from tensorfold.compute.runner import Runner
from tensorfold.compute.snapshots import Snapshot
from tensorfold.engine.active import ActiveRequest, Entry
from tensorfold.engine.capacity import Capacity, full_pages
from tensorfold.engine.kept import PrefixCache

__all__ = ["Lanes", "Taking"]

Taking: TypeAlias = Literal["taken", "no lane", "no room"]
"""What came of an attempt to get a slot."""


class Lanes:
    """All slots of one runner."""

    def __init__(self, runner: Runner[Any], capacity: Capacity, prefixes: PrefixCache) -> None:
        self.problem: str | None = None
        """A slot could not be given back: the device is in doubt."""
        self._runner = runner
        self._capacity = capacity
        self._prefixes = prefixes
        self._kept: dict[ActiveRequest, Snapshot] = {}

    def take(self, entry: Entry, holders: Iterable[Entry], now: float) -> Taking:
        """A slot for an entry that waits, with what is kept of its prompt, if anything."""
        if not self._runner.memory().lanes_free:
            return "no lane"
        own = self._kept.get(entry.active) if entry.prompt_done else None
        prefix = None if entry.computed else self._prefixes.find(entry.active.job)
        snapshot = own if prefix is None else prefix.snapshot
        shared = None if snapshot is None else full_pages(snapshot.tables, snapshot.length)
        missing = self._capacity.missing(entry, holders, shared)
        if missing and not self._prefixes.make_room(missing, but=prefix, others=self._kept.values()):
            return "no room"
        if not entry.computed:
            # What the shelf brings takes pages that are set aside for this entry already.
            prefix = self._prefixes.fetch(entry.active.job, prefix)
            snapshot = None if prefix is None else prefix.snapshot
        slot = self._runner.acquire()
        if slot is None:
            return "no lane"
        entry.slot, entry.admitted = slot, now
        if snapshot is not None:
            self._runner.restore(slot, snapshot)
        if prefix is not None:
            self._prefixes.use(prefix)
            entry.computed = prefix.length
        return "taken"

    def fork(self, source: Entry, entry: Entry, holders: Iterable[Entry], now: float) -> bool:
        """A slot for another choice, with the source's states. False: no lane or no room."""
        if source.slot is None:
            return False
        shared = full_pages(self._runner.tables(source.slot), self._runner.length(source.slot))
        missing = self._capacity.missing(entry, holders, shared)
        if missing and not self._prefixes.make_room(missing, others=self._kept.values()):
            return False
        entry.slot = self._runner.fork(source.slot)
        entry.admitted = now
        return entry.slot is not None

    def give_back(self, entry: Entry) -> None:
        """The entry's slot, with all that it holds. Never raises."""
        slot, entry.slot = entry.slot, None
        if slot is None:
            return
        try:
            self._runner.release(slot)
        except Exception as error:  # noqa: BLE001 (a device may raise anything; the request is over all the same)
            structlog.get_logger().exception("a slot could not be given back", slot=slot)
            self.problem = f"a slot could not be given back: {error}"

    # ---- kept prompts --------------------------------------------------------------------------------------

    def keep(self, source: Entry) -> None:
        """Keep the source's states for the other choices of its request."""
        if source.slot is not None and source.active not in self._kept:
            self._kept[source.active] = self._runner.snapshot(source.slot)

    def keeps(self, active: ActiveRequest) -> bool:
        """Whether a prompt is kept for this request."""
        return active in self._kept

    def forget(self, active: ActiveRequest) -> None:
        """Give back what is kept for a request; harmless when nothing is."""
        snapshot = self._kept.pop(active, None)
        if snapshot is not None:
            self._runner.drop(snapshot)

    @property
    def kept(self) -> tuple[ActiveRequest, ...]:
        """Requests whose prompt is kept."""
        return tuple(self._kept)

"""Whether there is room for a sequence: plain arithmetic over positions, before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tensorfold.compute.pages import GONE
from tensorfold.compute.runner import Runner
from tensorfold.contracts.states import PAGE, TableKey
from tensorfold.engine.active import Entry

__all__ = ["Capacity", "effective_window", "full_pages"]


def effective_window(runner: Runner[Any], asked: int | None) -> int:
    """Prompt and reply together: the checkpoint's window, or less as asked, and never more than the memory holds."""
    window = runner.geometry.window if asked is None else min(asked, runner.geometry.window)
    positions = runner.memory().positions
    return min(window, positions) if positions else window


class Capacity:
    """The memory of one runner, with what is promised to those that hold a slot.

    A lone sequence is promised its whole reply; beside others the next `growth` positions. Beyond that a reply grows
    as long as there are pages, and the newest yields when there are none.
    """

    def __init__(self, runner: Runner[Any], growth: int) -> None:
        self._runner = runner
        self._growth = growth

    def missing(
        self, entry: Entry, holders: Iterable[Entry], shared: Mapping[TableKey, int] | None = None
    ) -> dict[TableKey, int]:
        """Pages that would have to get free before an entry may get a slot beside the holders; empty: it may.

        `shared` are full pages that it will share with others.
        """
        holders = tuple(holders)
        needed = self._runner.pages_for(self._target(entry, alone=not holders))
        if self._ample(needed, len(holders)):
            return {}
        promised = [self._promised(each) for each in holders]
        missing: dict[TableKey, int] = {}
        for key, pages in self._runner.pages().items():
            own = needed[key] - (0 if shared is None else shared.get(key, 0))
            short = own + sum(each[key] for each in promised) - pages.free
            if short > 0:
                missing[key] = short
        return missing

    def _ample(self, needed: Mapping[TableKey, int], holders: int) -> bool:
        """Whether there are pages for the whole windows of all holders besides.

        PERF: so it is where memory is not short, and then nobody has to be looked at.
        """
        whole = self._runner.pages_for(self._runner.geometry.window)
        return all(
            needed[key] + holders * whole[key] <= pages.total - pages.spare
            for key, pages in self._runner.pages().items()
        )

    def _promised(self, holder: Entry) -> dict[TableKey, int]:
        """Pages that a holder may still take."""
        target = self._runner.pages_for(self._target(holder, alone=False))
        held = {} if holder.slot is None else self._runner.pages_held(holder.slot)
        return {key: max(0, count - held.get(key, 0)) for key, count in target.items()}

    def _target(self, entry: Entry, *, alone: bool) -> int:
        """Positions that an entry is promised in all."""
        sequence = entry.sequence
        sent = sequence.count
        left = sequence.job.limit.tokens - sent
        return len(sequence.job.ids) + sent + (left if alone else min(left, self._growth))


def full_pages(tables: Mapping[TableKey, Iterable[int]], length: int) -> dict[TableKey, int]:
    """Pages of a snapshot that whoever goes on from it shares for good: the last one is copied unless it is full."""
    return {key: sum(page != GONE for page in pages) - (length % PAGE != 0) for key, pages in tables.items()}

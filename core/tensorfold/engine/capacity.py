"""Whether there is room for a sequence: plain arithmetic over positions, before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorfold.compute.pages import pages_of
from tensorfold.compute.runner import Runner
from tensorfold.contracts.states import PAGE
from tensorfold.engine.active import Entry

__all__ = ["Capacity", "effective_window"]


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

    def fits(self, entry: Entry, holders: Iterable[Entry], shared: int = 0) -> bool:
        """Whether an entry may get a slot beside the holders; of `shared` positions it shares the full pages."""
        holders = tuple(holders)
        memory = self._runner.memory()
        needed = self._target(entry, alone=not holders) - shared // PAGE * PAGE
        promised = sum(max(0, self._target(each, alone=False) - self._held(each)) for each in holders)
        if memory.positions and needed > memory.positions_free - promised:
            return False
        return min(needed, self._runner.geometry.window) <= self._runner.room()

    def _target(self, entry: Entry, *, alone: bool) -> int:
        """Positions, in whole pages, that an entry is promised in all."""
        sequence = entry.sequence
        sent = sequence.count
        left = sequence.job.limit.tokens - sent
        return _whole(len(sequence.job.ids) + sent + (left if alone else min(left, self._growth)))

    def _held(self, entry: Entry) -> int:
        return 0 if entry.slot is None else _whole(self._runner.length(entry.slot))


def _whole(positions: int) -> int:
    return pages_of(positions) * PAGE

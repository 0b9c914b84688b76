"""Page tables against a simple model of them: what each slot holds, position by position."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tensorfold.compute.pages import GONE, PagedRange, PageTables, pages_of
from tensorfold.contracts.states import PAGE, TableKey
from tensorfold.errors import OutOfPages

FULL = TableKey("main", None)
SHORT = TableKey("main", 100)
CAPACITY = {FULL: 12, SHORT: 9}


class Tables(RuleBasedStateMachine):
    """Slots grow, are cut, forked, kept and released; a page holds what its writers wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = PageTables(CAPACITY)
        self.contents: dict[TableKey, dict[tuple[int, int], int]] = {key: {} for key in CAPACITY}
        self.truth: dict[int, list[int]] = {}
        self.kept: list[tuple[dict[TableKey, tuple[int, ...]], list[int]]] = []
        self.stamp = 0

    @rule(slot=st.integers(0, 3), count=st.integers(1, 150), keep=st.floats(0, 1))
    def grow(self, slot: int, count: int, keep: float) -> None:
        written = self.truth.get(slot, [])
        start = len(written)
        free = {key: self.tables.pool(key).free for key in CAPACITY}
        try:
            copies = self.tables.reserve([PagedRange(slot, start, start + count)], "main")
        except OutOfPages:
            assert free == {key: self.tables.pool(key).free for key in CAPACITY}
            return
        for copy in copies:
            for offset in range(PAGE):
                held = self.contents[copy.key].get((copy.source, offset))
                if held is not None:
                    self.contents[copy.key][(copy.target, offset)] = held
        values = [self.stamp + number for number in range(count)]
        self.stamp += count
        for key in CAPACITY:
            pages = self.tables.pages(slot, key)
            for position, value in enumerate(values, start):
                assert pages[position // PAGE] != GONE
                self.contents[key][(pages[position // PAGE], position % PAGE)] = value
        length = start + int(keep * count)
        self.truth[slot] = [*written, *values][:length]
        self.tables.commit(slot, length, "main")

    @precondition(lambda self: self.truth)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.truth)))
        self.tables.release(slot)
        del self.truth[slot]

    @precondition(lambda self: self.truth)
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.truth)))
        self.kept.append((self.tables.keep(slot), list(self.truth[slot])))

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), slot=st.integers(0, 3))
    def restore(self, data: st.DataObject, slot: int) -> None:
        held, written = data.draw(st.sampled_from(self.kept))
        self.tables.release(slot)
        self.tables.adopt(slot, held)
        self.truth[slot] = list(written)

    @precondition(lambda self: self.kept)
    @rule()
    def drop(self) -> None:
        held, _ = self.kept.pop(0)
        for key, pages in held.items():
            self.tables.forget(key, pages)

    @rule(pages=st.integers(1, 3))
    def bring(self, pages: int) -> None:
        """A snapshot comes in from outside."""
        if any(self.tables.pool(key).free < pages for key in CAPACITY):
            return
        held = {key: self.tables.fresh(key, pages) for key in CAPACITY}
        values = [self.stamp + number for number in range(pages * PAGE)]
        self.stamp += len(values)
        for key, fresh in held.items():
            for position, value in enumerate(values):
                self.contents[key][(fresh[position // PAGE], position % PAGE)] = value
        self.kept.append((held, values))

    def _check(self, key: TableKey, pages: tuple[int, ...], written: list[int]) -> None:
        assert len(pages) == pages_of(len(written))
        seen_from = 0 if key.window is None else max(0, len(written) - key.window + 1)
        for position in range(seen_from, len(written)):
            assert self.contents[key][(pages[position // PAGE], position % PAGE)] == written[position]

    @invariant()
    def every_slot_reads_what_it_wrote(self) -> None:
        for key in CAPACITY:
            for slot, written in self.truth.items():
                self._check(key, self.tables.pages(slot, key), written)
            for held, written in self.kept:
                self._check(key, held[key], written)

    @invariant()
    def no_page_is_lost(self) -> None:
        for key, capacity in CAPACITY.items():
            held = {page for slot in self.truth for page in self.tables.pages(slot, key)}
            held |= {page for pages, _ in self.kept for page in pages[key]}
            assert len(held - {GONE}) + self.tables.pool(key).free == capacity

    @invariant()
    def what_snapshots_hold_is_counted(self) -> None:
        for key in CAPACITY:
            by_slots = {page for slot in self.truth for page in self.tables.pages(slot, key)}
            by_kept = {page for pages, _ in self.kept for page in pages[key]} - {GONE}
            pool = self.tables.pool(key)
            assert (pool.kept, pool.spare) == (len(by_kept), len(by_kept - by_slots))
            for pages, _ in self.kept:
                assert self.tables.spare_in(pages)[key] == len(set(pages[key]) - by_slots - {GONE})


TestTables = Tables.TestCase
TestTables.settings = settings(max_examples=60, stateful_step_count=30)


def test_a_reservation_that_does_not_fit_changes_nothing() -> None:
    """Of two ranges together, neither gets a page when one of them cannot have its own."""
    tables = PageTables({FULL: 3})
    with pytest.raises(OutOfPages, match="4 more pages"):
        tables.reserve([PagedRange(0, 0, PAGE), PagedRange(1, 0, 3 * PAGE)], "main")
    assert tables.pool(FULL).free == 3
    assert tables.pages(0, FULL) == ()


def test_a_window_gives_its_old_pages_back() -> None:
    """However long the sequence, a windowed table holds the window and no more."""
    tables = PageTables({SHORT: 4})
    for start in range(0, 64 * 40, 64):
        tables.reserve([PagedRange(0, start, start + 64)], "main")
        tables.commit(0, start + 64, "main")
    assert tables.pool(SHORT).free == 2
    assert tables.pages(0, SHORT).count(GONE) == 38

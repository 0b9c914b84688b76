"""Which pages hold what: refcounted pages of 64 positions, one table a slot and `TableKey`, shared until written.

Bookkeeping alone, on the host, the same for every backend; the memory is the backend's `StateStore`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tensorfold.contracts.states import PAGE, Group, TableKey
from tensorfold.errors import OutOfPages

__all__ = ["GONE", "PagePool", "PageTables", "PagedRange", "pages_of"]

GONE = -1
"""A page behind the window: given back, never read."""


def pages_of(length: int) -> int:
    """Pages that hold so many positions."""
    return -(-length // PAGE)


class PagePool:
    """The pages of one table key, each with the number of its holders."""

    def __init__(self, capacity: int) -> None:
        self._holders = [0] * capacity
        self._free = list(range(capacity - 1, -1, -1))

    @property
    def capacity(self) -> int:
        """Pages in all."""
        return len(self._holders)

    @property
    def free(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def take(self) -> int:
        """A page for one holder. The caller has made sure that there is one."""
        page = self._free.pop()
        self._holders[page] = 1
        return page

    def hold(self, page: int) -> None:
        """One more holder."""
        self._holders[page] += 1

    def drop(self, page: int) -> None:
        """One holder less; the last one gives the page back."""
        self._holders[page] -= 1
        if self._holders[page] == 0:
            self._free.append(page)

    def shared(self, page: int) -> bool:
        """Whether writing to it would be seen by another holder."""
        return self._holders[page] > 1


@dataclass(frozen=True, slots=True)
class PagedRange:
    """Positions that a slot is about to write."""

    slot: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PageCopy:
    """A shared page that a slot is about to write, and its own copy of it."""

    key: TableKey
    source: int
    target: int


class PageTables:
    """Every slot's tables over the pools."""

    def __init__(self, capacity: Mapping[TableKey, int]) -> None:
        self._pools = {key: PagePool(count) for key, count in capacity.items()}
        self._tables: dict[tuple[int, TableKey], list[int]] = {}

    def keys(self, group: Group) -> tuple[TableKey, ...]:
        """The tables of a group."""
        return tuple(key for key in self._pools if key.group == group)

    def pool(self, key: TableKey) -> PagePool:
        """The pool behind a table."""
        return self._pools[key]

    def pages(self, slot: int, key: TableKey) -> tuple[int, ...]:
        """The slot's pages in the order of their positions."""
        return tuple(self._tables.get((slot, key), ()))

    # ---- growing -------------------------------------------------------------------------------------------

    def reserve(self, ranges: Sequence[PagedRange], group: Group) -> list[PageCopy]:
        """Give every range its pages, unshared where it writes into one that is partly filled.

        Returns the copies that the store has to make before anything is written.

        Raises:
            OutOfPages: a pool has too few; nothing was changed.
        """
        keys = self.keys(group)
        for key in keys:
            needed = sum(self._needed(each, key) for each in ranges)
            if needed > self._pools[key].free:
                raise OutOfPages(
                    f"{needed} more pages of {PAGE} positions are needed and {self._pools[key].free} are free"
                )
        return [copy for key in keys for each in ranges for copy in self._grow(each, key)]

    def _needed(self, wanted: PagedRange, key: TableKey) -> int:
        table = self._tables.get((wanted.slot, key), [])
        return max(0, pages_of(wanted.end) - len(table)) + self._unshares(wanted, key, table)

    def _unshares(self, wanted: PagedRange, key: TableKey, table: Sequence[int]) -> bool:
        first = wanted.start // PAGE
        return wanted.start % PAGE != 0 and first < len(table) and self._pools[key].shared(table[first])

    def _grow(self, wanted: PagedRange, key: TableKey) -> Iterable[PageCopy]:
        pool = self._pools[key]
        table = self._tables.setdefault((wanted.slot, key), [])
        if self._unshares(wanted, key, table):
            first = wanted.start // PAGE
            source, target = table[first], pool.take()
            table[first] = target
            pool.drop(source)
            yield PageCopy(key, source, target)
        while len(table) < pages_of(wanted.end):
            table.append(pool.take())

    def needed(self, slot: int | None, length: int, new: int) -> dict[TableKey, int]:
        """Pages of each pool that `new` more positions after `length` would take (slot None: a fresh sequence)."""
        wanted = PagedRange(-1 if slot is None else slot, length, length + new)
        return {key: self._needed(wanted, key) for key in self._pools}

    # ---- shrinking -----------------------------------------------------------------------------------------

    def commit(self, slot: int, length: int, group: Group) -> None:
        """Give back the pages behind the length, and those that no later row's window reaches."""
        for key in self.keys(group):
            table = self._tables.get((slot, key))
            if table is None:
                continue
            pool = self._pools[key]
            while len(table) > pages_of(length):
                page = table.pop()
                if page != GONE:
                    pool.drop(page)
            if key.window is None:
                continue
            # The next row stands at `length` and sees nothing before length - window + 1.
            for number in range(max(0, (length - key.window + 1) // PAGE)):
                if table[number] != GONE:
                    pool.drop(table[number])
                    table[number] = GONE

    def release(self, slot: int) -> None:
        """Give back everything that the slot holds."""
        for key in self._pools:
            self.drop(key, self._tables.pop((slot, key), ()))

    # ---- sharing -------------------------------------------------------------------------------------------

    def hold(self, slot: int) -> dict[TableKey, tuple[int, ...]]:
        """The slot's tables, held once more; give them back with `drop` for each."""
        held: dict[TableKey, tuple[int, ...]] = {}
        for key, pool in self._pools.items():
            pages = held[key] = self.pages(slot, key)
            for page in pages:
                if page != GONE:
                    pool.hold(page)
        return held

    def adopt(self, slot: int, tables: Mapping[TableKey, Sequence[int]]) -> None:
        """The empty slot's tables become these, held once more."""
        for key, pages in tables.items():
            for page in pages:
                if page != GONE:
                    self._pools[key].hold(page)
            self._tables[(slot, key)] = list(pages)

    def drop(self, key: TableKey, pages: Iterable[int]) -> None:
        """One holder less for each of these pages."""
        for page in pages:
            if page != GONE:
                self._pools[key].drop(page)

    def take(self, key: TableKey, count: int) -> tuple[int, ...]:
        """Fresh pages outside any table.

        Raises:
            OutOfPages: the pool has too few; nothing was changed.
        """
        pool = self._pools[key]
        if count > pool.free:
            raise OutOfPages(f"{count} more pages of {PAGE} positions are needed and {pool.free} are free")
        return tuple(pool.take() for _ in range(count))

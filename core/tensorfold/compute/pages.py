"""Which pages hold what: refcounted pages of 64 positions, one table a slot and `TableKey`, shared until written.

Bookkeeping alone, on the host, the same for every backend; the memory is the backend's `StateStore`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tensorfold.contracts.states import PAGE, Group, TableKey
from tensorfold.errors import OutOfPages

__all__ = ["GONE", "PagePool", "PageTables", "PagedRange", "pages_a_sequence", "pages_of"]

GONE = -1
"""A page behind the window: given back, never read."""


def pages_of(length: int) -> int:
    """Pages that hold so many positions."""
    return -(-length // PAGE)


def pages_a_sequence(key: TableKey, length: int, chunk: int) -> int:
    """The most pages that one sequence of `length` positions holds in a table, computed in chunks of at most `chunk`."""
    if key.window is None:
        return pages_of(length)
    # Nothing is trimmed before a commit: the window and one chunk, at any alignment.
    return min(pages_of(length), pages_of(key.window - 1 + chunk) + 1)


class PagePool:
    """The pages of one table key, each with the number of its holders.

    A holder is a slot's table, or a snapshot; those of snapshots are counted apart, since they can be given up.
    """

    def __init__(self, capacity: int) -> None:
        self._holders = [0] * capacity
        self._kept_by = [0] * capacity
        """Of the holders, those that are snapshots."""
        self._free = list(range(capacity - 1, -1, -1))
        self.kept = 0
        """Pages that a snapshot holds."""
        self.spare = 0
        """Of those, the ones that nobody else holds: they get free when every snapshot is dropped."""

    @property
    def capacity(self) -> int:
        """Pages in all."""
        return len(self._holders)

    @property
    def free(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def take(self) -> int:
        """A page for a slot. The caller has made sure that there is one."""
        page = self._free.pop()
        self._holders[page] = 1
        return page

    def hold(self, page: int) -> None:
        """One more slot holds it."""
        self.spare -= self.is_spare(page)
        self._holders[page] += 1

    def drop(self, page: int) -> None:
        """One slot less; the last holder gives the page back."""
        self._holders[page] -= 1
        if self._holders[page] == 0:
            self._free.append(page)
        self.spare += self.is_spare(page)

    def keep(self, page: int) -> None:
        """One more snapshot holds it."""
        self.kept += self._kept_by[page] == 0
        self._holders[page] += 1
        self._kept_by[page] += 1

    def forget(self, page: int) -> None:
        """One snapshot less; the last holder gives the page back."""
        self.spare -= self.is_spare(page)
        self._holders[page] -= 1
        self._kept_by[page] -= 1
        self.kept -= self._kept_by[page] == 0
        if self._holders[page] == 0:
            self._free.append(page)
        self.spare += self.is_spare(page)

    def is_spare(self, page: int) -> bool:
        """Whether snapshots alone hold it."""
        return 0 < self._holders[page] == self._kept_by[page]

    def shared(self, page: int) -> bool:
        """Whether writing to it would be seen by another holder."""
        return self._holders[page] > 1


class PagedRange(msgspec.Struct, frozen=True):
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
        self._keys: dict[Group, tuple[TableKey, ...]] = {
            "main": tuple(key for key in capacity if key.group == "main"),
            "draft": tuple(key for key in capacity if key.group == "draft"),
        }
        self._tables: dict[tuple[int, TableKey], list[int]] = {}

    def keys(self, group: Group) -> tuple[TableKey, ...]:
        """The tables of a group."""
        return self._keys[group]

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
        growing: list[tuple[TableKey, PagedRange]] = []
        for key in self.keys(group):
            needed = 0
            pool = self._pools[key]
            for each in ranges:
                # PERF: a reply takes a page only every 64th token.
                if self._fits(each, self._tables.get((each.slot, key), ()), pool):
                    continue
                needed += self._needed(each, key)
                growing.append((key, each))
            if needed > self._pools[key].free:
                raise OutOfPages(
                    f"{needed} more pages of {PAGE} positions are needed and {self._pools[key].free} are free"
                )
        return [copy for key, each in growing for copy in self._grow(each, key)]

    @staticmethod
    def _fits(wanted: PagedRange, table: Sequence[int], pool: PagePool) -> bool:
        """Whether the table has all pages that it takes, and none that another holder has as well."""
        start = wanted.start
        return wanted.end <= len(table) * PAGE and (start % PAGE == 0 or not pool.shared(table[start // PAGE]))

    def _needed(self, wanted: PagedRange, key: TableKey) -> int:
        table = self._tables.get((wanted.slot, key), ())
        return max(0, -(-wanted.end // PAGE) - len(table)) + self._unshares(wanted, key, table)

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
            if key.window is None and len(table) * PAGE < length + PAGE:
                continue  # PERF: no page lies wholly behind the length, as after nearly every token
            pool = self._pools[key]
            while len(table) > -(-length // PAGE):
                page = table.pop()
                if page != GONE:
                    pool.drop(page)
            if key.window is None:
                continue
            # The next row stands at `length`; a draft head may stand at the last one again, which sees one row more.
            for number in range(max(0, (length - key.window) // PAGE)):
                if table[number] != GONE:
                    pool.drop(table[number])
                    table[number] = GONE

    def release(self, slot: int) -> None:
        """Give back everything that the slot holds."""
        for key, pool in self._pools.items():
            for page in self._tables.pop((slot, key), ()):
                if page != GONE:
                    pool.drop(page)

    # ---- sharing -------------------------------------------------------------------------------------------

    def keep(self, slot: int) -> dict[TableKey, tuple[int, ...]]:
        """The slot's tables, held for a snapshot as well; give them back with `forget` for each."""
        kept: dict[TableKey, tuple[int, ...]] = {}
        for key, pool in self._pools.items():
            pages = kept[key] = self.pages(slot, key)
            for page in pages:
                if page != GONE:
                    pool.keep(page)
        return kept

    def adopt(self, slot: int, tables: Mapping[TableKey, Sequence[int]]) -> None:
        """The empty slot's tables become these of a snapshot."""
        for key, pages in tables.items():
            for page in pages:
                if page != GONE:
                    self._pools[key].hold(page)
            self._tables[(slot, key)] = list(pages)

    def forget(self, key: TableKey, pages: Iterable[int]) -> None:
        """A snapshot gives these pages up."""
        for page in pages:
            if page != GONE:
                self._pools[key].forget(page)

    def spare_in(self, tables: Mapping[TableKey, Sequence[int]]) -> dict[TableKey, int]:
        """How many pages of these tables are held by snapshots alone."""
        return {
            key: sum(page != GONE and self._pools[key].is_spare(page) for page in pages)
            for key, pages in tables.items()
        }

    def fresh(self, key: TableKey, count: int) -> tuple[int, ...]:
        """Fresh pages for a snapshot.

        Raises:
            OutOfPages: the pool has too few; nothing was changed.
        """
        pool = self._pools[key]
        if count > pool.free:
            raise OutOfPages(f"{count} more pages of {PAGE} positions are needed and {pool.free} are free")
        pages = tuple(pool.take() for _ in range(count))
        for page in pages:
            pool.keep(page)
            pool.drop(page)
        return pages

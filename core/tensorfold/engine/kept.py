"""Kept prefixes: snapshots of prompts at the starts of their chunks, found by token ids, given up when room is short.

A prefix serves a prompt that begins with it and goes on, and whose chunk plan has a start where it ends: then what is
kept is bit for bit what the prompt would compute. States of replies are kept only where the backend declares that
chunks and rows give the same bits; there a prefix of any length serves.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from tensorfold.compute.runner import Runner
from tensorfold.compute.snapshots import Snapshot
from tensorfold.contracts.states import TableKey
from tensorfold.engine.job import Job
from tensorfold.engine.plan import Chunk
from tensorfold.engine.prefix import PrefixTree

__all__ = ["MOST", "Keeping", "KeptPrefix", "PrefixCache", "Shelf", "ShelfGauges", "keep_starts", "serves", "shares"]

MOST = 4
"""Starts of one prompt that are kept."""
SEEN = 128
"""Recent prompts that are remembered, so that what two of them share can be told."""
SEEN_TOKENS = 1 << 21
"""The most tokens of those."""

Keeping: TypeAlias = Literal["prompt", "system", "reply"]
"""`system`: the end of a conversation's first message, given up after all others."""


@dataclass(frozen=True, slots=True, eq=False)
class KeptPrefix:
    """One snapshot, and what it is of."""

    ids: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    """How it was computed; of a reply's, the prompt's part."""
    snapshot: Snapshot
    keeping: Keeping

    @property
    def length(self) -> int:
        """Positions."""
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class ShelfGauges:
    """What lies on a shelf."""

    tokens: int
    """Of all prefixes, end to end."""
    bytes: int
    fetched_tokens: int
    """Prompt tokens so far that were brought back from it."""


class Shelf(Protocol):
    """A place for prefixes that memory has no room for."""

    @property
    def tokens(self) -> int:
        """Of all prefixes, end to end."""
        ...

    @property
    def bytes(self) -> int:
        """That they take."""
        ...

    def put(self, kept: KeptPrefix, runner: Runner[Any]) -> None:
        """Take a prefix that is about to be given up; may refuse silently."""
        ...

    def find(self, job: Job, longer_than: int, runner: Runner[Any]) -> KeptPrefix | None:
        """A prefix that serves this prompt, back in the runner's memory; None: there is none, or no room for it."""
        ...

    def closing(self) -> None:
        """The engine ends: what is put from here on is the last."""
        ...

    def close(self) -> None:
        """Return when what was put is safe."""
        ...


def serves(ids: tuple[int, ...], chunks: tuple[Chunk, ...], job: Job, *, equal: bool) -> bool:
    """Whether a prompt that begins with this prefix may go on from what was computed of it by these chunks.

    `equal`: chunks and rows give the same bits, so that any way of computing it is as good.
    """
    if len(ids) >= len(job.ids):
        return False
    return equal or (chunks == job.chunks[: len(chunks)] and chunks[-1].end == len(ids))


def keep_starts(job: Job, common: int) -> frozenset[int]:
    """The starts of a prompt's chunks that are worth keeping; `common` is how much of it was seen before.

    At most four: the end of the first message, the end of what it shares with another prompt, the last message's
    opening (where the next turn goes on), and the last chunk of all (where the same prompt goes on).
    """
    starts = [chunk.start for chunk in job.chunks[1:]]
    if not starts:
        return frozenset()
    bounds = [common, len(job.ids), *job.markers[1:2], *job.markers[-1:]]
    return frozenset(max((start for start in starts if start <= bound), default=0) for bound in bounds) - {0}


def shares(chunks: tuple[Chunk, ...], others: tuple[Chunk, ...], common: int) -> int:
    """The last start within `common` tokens that both plans come to in the same way; 0: none."""
    last = 0
    for one, other in zip(chunks, others, strict=False):
        if one.start != other.start or one.start > common:
            break
        last = one.start
    return last


class PrefixCache:
    """The kept prefixes of one runner. Used by the engine thread alone."""

    def __init__(
        self, runner: Runner[Any], limit: int | None, copies: int | None = None, shelf: Shelf | None = None
    ) -> None:
        """`limit` and `copies` are in bytes of device memory, of everything and of what lies outside any page.

        0 as `limit`: nothing is kept; None: whatever nobody else needs.
        """
        self.hits = 0
        """Prompts that began from a kept prefix."""
        self.evictions = 0
        """Prefixes given up."""
        self._fetched_tokens = 0
        self._runner = runner
        self._limit = limit
        self._most_copied = copies
        self._shelf = shelf
        self._tree: PrefixTree[KeptPrefix] = PrefixTree()
        self._order: OrderedDict[KeptPrefix, None] = OrderedDict()
        """Least recently used first."""
        self._copies = 0
        """Bytes of fixed-size states, outside any page."""
        self._seen: PrefixTree[tuple[int, ...]] = PrefixTree()
        self._recent: OrderedDict[tuple[int, ...], None] = OrderedDict()
        self._recent_tokens = 0

    def __len__(self) -> int:
        return len(self._order)

    @property
    def bytes(self) -> int:
        """Device memory held, pages that running sequences share included."""
        return self._runner.kept_bytes + self._copies

    @property
    def shelf(self) -> ShelfGauges | None:
        """What lies on the shelf; None: there is none."""
        return None if self._shelf is None else ShelfGauges(self._shelf.tokens, self._shelf.bytes, self._fetched_tokens)

    @property
    def held(self) -> tuple[KeptPrefix, ...]:
        """All prefixes in memory, the least recently used first."""
        return tuple(self._order)

    # ---- what is seen --------------------------------------------------------------------------------------

    def enter(self, job: Job) -> frozenset[int]:
        """A prompt has come: the starts of it that are to be kept."""
        if self._limit == 0:
            return frozenset()
        common = max(self._seen.common(job.ids), self._tree.common(job.ids))
        self._remember(job.ids)
        return keep_starts(job, common)

    def _remember(self, ids: tuple[int, ...]) -> None:
        if ids in self._recent:
            self._recent.move_to_end(ids)
            return
        self._recent[ids] = None
        self._seen.put(ids, ids)
        self._recent_tokens += len(ids)
        while len(self._recent) > 1 and (len(self._recent) > SEEN or self._recent_tokens > SEEN_TOKENS):
            oldest, _ = self._recent.popitem(last=False)
            self._recent_tokens -= len(oldest)
            self._seen.remove(oldest)

    # ---- finding -------------------------------------------------------------------------------------------

    def find(self, job: Job) -> KeptPrefix | None:
        """The longest prefix in memory that serves this prompt."""
        return None if job.whole else self._in_memory(job)

    def fetch(self, job: Job, found: KeptPrefix | None) -> KeptPrefix | None:
        """A longer one from the shelf, if there is any and room for it; else the one that was found."""
        if self._shelf is None or job.whole:
            return found
        brought = self._shelf.find(job, 0 if found is None else found.length, self._runner)
        if brought is None:
            return found
        self._add(brought)
        if brought not in self._order:
            return found
        self._fetched_tokens += brought.length - (0 if found is None else found.length)
        return brought

    def length(self, job: Job) -> int:
        """The length of the longest prefix in memory that serves this prompt."""
        found = None if job.whole else self._in_memory(job)
        return 0 if found is None else found.length

    def _in_memory(self, job: Job) -> KeptPrefix | None:
        equal = self._runner.chunk_equals_rows
        return next(
            (kept for kept in self._tree.along(job.ids) if serves(kept.ids, kept.chunks, job, equal=equal)), None
        )

    def use(self, kept: KeptPrefix) -> None:
        """A prompt begins from this prefix."""
        self.hits += 1
        self._order.move_to_end(kept)

    # ---- keeping -------------------------------------------------------------------------------------------

    def keep(self, job: Job, slot: int, length: int) -> None:
        """Keep the first `length` positions of a prompt, which are what the slot holds now."""
        chunks = tuple(chunk for chunk in job.chunks if chunk.end <= length)
        first_message = job.markers[1] if len(job.markers) > 1 else 0
        self._keep(job.ids[:length], chunks, slot, "system" if length == first_message else "prompt")

    def keep_reply(self, job: Job, tokens: tuple[int, ...], slot: int) -> None:
        """Keep a finished reply behind its prompt, where the numerics allow it; `tokens` are those in the slot."""
        if self._limit != 0 and self._runner.chunk_equals_rows:
            self._keep((*job.ids, *tokens), job.chunks, slot, "reply")

    def _keep(self, ids: tuple[int, ...], chunks: tuple[Chunk, ...], slot: int, keeping: Keeping) -> None:
        there = self._at(ids)
        if there is not None and there.chunks == chunks:
            self._order.move_to_end(there)
        else:
            self._add(KeptPrefix(ids, chunks, self._runner.snapshot(slot), keeping))

    def _at(self, ids: tuple[int, ...]) -> KeptPrefix | None:
        longest = next(iter(self._tree.along(ids)), None)
        return longest if longest is not None and longest.length == len(ids) else None

    def _add(self, kept: KeptPrefix) -> None:
        if (there := self._at(kept.ids)) is not None:
            self.drop(there)
        self._tree.put(kept.ids, kept)
        self._order[kept] = None
        self._copies += copied_bytes(kept.snapshot)
        while self._too_much and len(self._order) > 1:
            self._evict(self._next(but=kept))
        if self._too_much:
            self.drop(kept)

    @property
    def _too_much(self) -> bool:
        return (self._limit is not None and self.bytes > self._limit) or (
            self._most_copied is not None and self._copies > self._most_copied
        )

    # ---- giving up -----------------------------------------------------------------------------------------

    def make_room(
        self, missing: Mapping[TableKey, int], but: KeptPrefix | None = None, others: Iterable[Snapshot] = ()
    ) -> bool:
        """Give up the least recently used prefixes until so many pages are free; nothing when that cannot be.

        `others` are snapshots that are not this cache's to give up.
        """
        pages = self._runner.pages()
        locked: Counter[TableKey] = Counter()
        for snapshot in (*others, *(() if but is None else (but.snapshot,))):
            locked.update(self._runner.spare_in(snapshot))
        if any(count > pages[key].spare - locked[key] for key, count in missing.items()):
            return False
        wanted = {key: pages[key].free + count for key, count in missing.items()}
        while any(self._runner.pages()[key].free < count for key, count in wanted.items()):
            if not self._others(but):
                return False
            self._evict(self._next(but))
        return True

    def free_some(self) -> bool:
        """Give up prefixes until a page gets free, or all of them; False: there was none to give up.

        Where none gets free the step may succeed all the same: a page that nobody shares any more is written in place.
        """
        if not self._order:
            return False
        before = {key: pages.free for key, pages in self._runner.pages().items()}
        while self._order and all(pages.free <= before[key] for key, pages in self._runner.pages().items()):
            self._evict(self._next())
        return True

    def drop(self, kept: KeptPrefix) -> None:
        """Forget a prefix."""
        self._tree.remove(kept)
        del self._order[kept]
        self._copies -= copied_bytes(kept.snapshot)
        self._runner.drop(kept.snapshot)

    def close(self) -> None:
        """Hand everything to the shelf, the most recently used first, and forget it."""
        if self._shelf is not None:
            self._shelf.closing()
        for kept in reversed(tuple(self._order)):
            if self._shelf is not None:
                self._shelf.put(kept, self._runner)
            self.drop(kept)
        if self._shelf is not None:
            self._shelf.close()

    def _evict(self, kept: KeptPrefix) -> None:
        self.evictions += 1
        if self._shelf is not None:
            self._shelf.put(kept, self._runner)
        self.drop(kept)

    def _others(self, but: KeptPrefix | None) -> Collection[KeptPrefix]:
        return [kept for kept in self._order if kept is not but]

    def _next(self, but: KeptPrefix | None = None) -> KeptPrefix:
        """The least recently used, first messages after all others."""
        others = self._others(but)
        return next((kept for kept in others if kept.keeping != "system"), None) or next(iter(others))


def copied_bytes(snapshot: Snapshot) -> int:
    """Bytes of its fixed-size states."""
    return sum(saved.bytes for saved in snapshot.saved.values())

"""The Runner: one decoder over one session, its slots, pages and open rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.holdings import Memory, Pages, Pool
from tensorfold.compute.output import HiddenRows, Output
from tensorfold.compute.pages import GONE, PagedRange, PagePool, PageTables, pages_a_sequence
from tensorfold.compute.reading import Reader
from tensorfold.compute.snapshots import Snapshot, export_snapshot, import_snapshot, snapshot_bytes
from tensorfold.compute.steps import StepBuilder
from tensorfold.contracts.arrays import A
from tensorfold.contracts.backend import CanCapture, Saved, Session
from tensorfold.contracts.family import Decoder, Geometry
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.sampling import Draw, Drawn
from tensorfold.contracts.states import PAGE, Group, TableKey, is_paged
from tensorfold.contracts.step import Kind, Segment, Step
from tensorfold.errors import BackendError

__all__ = ["HiddenRows", "Memory", "Output", "Pages", "Runner"]


@dataclass(slots=True)
class _Slot:
    """One sequence's host side."""

    tokens: dict[Group, list[int]]
    open: dict[Group, tuple[int, int]]
    """Start and count of the rows that wait for `commit`."""


class Runner(Generic[A]):
    """Runs segments of up to `lanes` sequences; the one way from tokens to logits.

    Used by one thread. After each `forward` (or `draft`) every segment's slot is committed exactly once; going further
    back is `restore`.
    """

    def __init__(
        self,
        decoder: Decoder[A],
        session: Session[A],
        geometry: Geometry,
        *,
        lanes: int,
        pages: Mapping[TableKey, int],
        identity: str,
        chunk: int | None = None,
    ) -> None:
        """`identity` names the weights; with the session's numerics and the plan's step it says which snapshots fit.

        `chunk` is the step of the chunk plan; None: the session's own.
        """
        self.geometry = geometry
        self.lanes = lanes
        self.chunk = session.chunk if chunk is None else chunk
        """The step of the chunk plan."""
        self.identity = f"{session.numerics}/{self.chunk}/{identity}"
        self._session = session
        self._store = session.store(geometry.states, pages, lanes)
        self._ops: dict[Kind, Ops[A]] = {
            "chunk": session.ops("chunk", self._store, geometry.states),
            "rows": session.ops("rows", self._store, geometry.states),
        }
        self._decoder: Decoder[A] = session.capture(decoder) if isinstance(session, CanCapture) else decoder
        self._reader = Reader(self._decoder, session, self._ops["rows"])
        self._tables = PageTables(pages)
        self._slots: dict[int, _Slot] = {}
        self._free = list(range(lanes - 1, -1, -1))
        self._steps = StepBuilder(session, self._tables)
        self.drafts = decoder.draft is not None
        """Whether the model has a draft head."""
        self.shared_draft = self.drafts and geometry.shared_draft
        """Whether that head has no states and reads the decoder's, so that nothing of it is committed."""
        self._groups: tuple[Group, ...] = ("main", "draft") if self.drafts and not self.shared_draft else ("main",)
        self._fixed: dict[Group, bool] = {
            group: any(spec.group == group and not is_paged(spec) for spec in geometry.states.values())
            for group in self._groups
        }

    @property
    def chunk_equals_rows(self) -> bool:
        """Whether a chunk leaves the same bits as rows would, for this model."""
        return self._session.chunk_equals_rows(self.geometry)

    # ---- slots ---------------------------------------------------------------------------------------------

    def acquire(self) -> int | None:
        """A free slot of length zero, or None when every lane is taken."""
        if not self._free:
            return None
        slot = self._free.pop()
        self._slots[slot] = _Slot({group: [] for group in self._groups}, {})
        return slot

    def release(self, slot: int) -> None:
        """Give a slot back with all that it holds, open rows included."""
        del self._slots[slot]
        self._tables.release(slot)
        for group in self._groups:
            if self._fixed[group]:
                self._store.reset(slot, group)
        self._free.append(slot)

    def length(self, slot: int, group: Group = "main") -> int:
        """Committed positions."""
        held = self._slots[slot]
        opened = held.open.get(group)
        return len(held.tokens[group]) if opened is None else opened[0]

    def fork(self, slot: int) -> int | None:
        """A new slot at the same committed length, sharing pages until one is written; None: no lane is free."""
        other = self.acquire()
        if other is None:
            return None
        snapshot = self.snapshot(slot)
        self._adopt(other, snapshot)
        self.drop(snapshot)
        return other

    # ---- running -------------------------------------------------------------------------------------------

    def forward(self, segments: Sequence[Segment]) -> Output[A]:
        """Run one `chunk` segment, or any number of `rows` segments of different slots.

        Raises:
            OutOfPages: no room; nothing was changed.
            BackendError: a segment does not begin at its slot's committed length, or the slot has open rows.
        """
        return self._run(self._decoder, segments, "main", {})

    def draft(self, segments: Sequence[Segment], hidden: Sequence[HiddenRows[A]]) -> Output[A]:
        """Run the draft head: row p takes the target's (or its own) hidden row p and token p + 1.

        `hidden` holds, segment by segment, as many rows as the segment has tokens. A head that reads the decoder's
        states takes one token a segment, at the decoder's last committed row, and leaves nothing open.
        """
        head = self._decoder.draft
        if head is None:
            raise BackendError("this model has no draft head")
        rows = [each.rows for each in hidden]
        joined: A = rows[0] if len(rows) == 1 else self._ops["rows"].concat(rows, axis=0)
        inputs = {"hidden": joined}
        return self._beside(head, segments, inputs) if self.shared_draft else self._run(head, segments, "draft", inputs)

    def _beside(self, head: Decoder[A], segments: Sequence[Segment], inputs: Mapping[str, A]) -> Output[A]:
        """A step that writes no state."""
        for each in segments:
            last = self.length(each.slot) - 1
            if each.start != last or len(each.tokens) != 1 or each.kind != "rows":
                raise BackendError(f"the draft head takes one row of slot {each.slot} at its last one, {last}")
        step = self._steps.build("rows", segments, "main", [self._slots[each.slot].tokens["main"] for each in segments])
        self._prepare(head, step, inputs)
        return self._compute(head, step, "draft")

    def _run(
        self, decoder: Decoder[A], segments: Sequence[Segment], group: Group, inputs: Mapping[str, A]
    ) -> Output[A]:
        held = [self._slots[each.slot] for each in segments]
        kind = self._checked(segments, held, group)
        ranges = [PagedRange(each.slot, each.start, each.start + len(each.tokens)) for each in segments]
        for copy in self._tables.reserve(ranges, group):
            self._store.copy_page(copy.key, copy.source, copy.target)
        before = [each.tokens[group] for each in held]
        step = self._steps.build(kind, segments, group, before)
        self._prepare(decoder, step, inputs)
        for each, slot, tokens in zip(segments, held, before, strict=True):
            slot.open[group] = (each.start, len(each.tokens))
            tokens += each.tokens
        return self._compute(decoder, step, group)

    def _prepare(self, decoder: Decoder[A], step: Step[A], inputs: Mapping[str, A]) -> None:
        prepared = {name: self._session.array(values) for name, values in decoder.prepare(step).items()}
        step.inputs = {**prepared, **inputs}

    def _compute(self, decoder: Decoder[A], step: Step[A], group: Group) -> Output[A]:
        ops = self._ops[step.kind]
        hidden = decoder.forward(ops, step)
        bounds = step.bounds if step.wanted is None else self._steps.wanted_bounds(step.segments)
        picked = self._pick(ops, hidden, step, bounds)
        self._session.finish()
        return Output(hidden, picked, bounds, step.bounds, group)

    @staticmethod
    def _checked(segments: Sequence[Segment], held: Sequence[_Slot], group: Group) -> Kind:
        kinds: set[Kind] = {each.kind for each in segments}
        if len(kinds) != 1 or (kinds == {"chunk"} and len(segments) != 1):
            raise BackendError("a step is one chunk segment, or any number of rows segments")
        if len({each.slot for each in segments}) != len(segments):
            raise BackendError("two segments of one step have the same slot")
        for each, slot in zip(segments, held, strict=True):
            if group in slot.open:
                raise BackendError(f"slot {each.slot} has open rows: commit them before the next forward")
            if each.start != len(slot.tokens[group]) or not each.tokens:
                raise BackendError(
                    f"a segment of {len(each.tokens)} tokens begins at {each.start}, and slot {each.slot} is"
                    f" {len(slot.tokens[group])} long"
                )
        return kinds.pop()

    def _pick(self, ops: Ops[A], hidden: A, step: Step[A], bounds: tuple[tuple[int, int], ...]) -> A | None:
        if bounds[-1][1] == 0:
            return None
        return hidden if step.wanted is None else ops.rows(hidden, step.wanted)

    def commit(self, slot: int, length: int, group: Group = "main") -> None:
        """Keep the open rows up to `length`, start <= length <= start + rows; exactly once after each forward."""
        held = self._slots[slot]
        start, rows = held.open.pop(group)
        if not start <= length <= start + rows:
            held.open[group] = (start, rows)
            raise BackendError(f"rows {start} to {start + rows} are open, and {length} is none of their ends")
        del held.tokens[group][length:]
        if self._fixed[group]:
            self._store.commit(slot, group, start, rows, length)
        self._tables.commit(slot, length, group)

    def abandon(self, slot: int) -> None:
        """Drop the open rows of every group; harmless when there are none."""
        for group, (start, _) in tuple(self._slots[slot].open.items()):
            self.commit(slot, start, group)

    @property
    def can_rewind_drafts(self) -> bool:
        """Whether the draft head's states can go back by more than the last forward."""
        return not self._fixed.get("draft", True) and all(key.window is None for key in self._tables.keys("draft"))

    def rewind_drafts(self, slot: int, length: int) -> None:
        """Forget the draft head's rows behind a committed length.

        Raises:
            BackendError: its states cannot go back, rows are open, or it is not so long.
        """
        held = self._slots[slot]
        if not self.can_rewind_drafts or "draft" in held.open or length > len(held.tokens["draft"]):
            raise BackendError(f"the draft states of slot {slot} cannot go back to {length}")
        del held.tokens["draft"][length:]
        self._tables.commit(slot, length, "draft")

    # ---- reading -------------------------------------------------------------------------------------------

    def sample(self, output: Output[A], draws: Sequence[Draw]) -> list[Drawn]:
        """One token for each draw; `Draw.row` indexes the output's wanted rows."""
        return self._reader.sample(output, draws)

    def logits(self, output: Output[A], rows: Sequence[int]) -> NDArray[np.float32]:
        """`[len(rows), V]` of these wanted rows, on the host; the same bits that `sample` reads."""
        return self._reader.logits(output, rows)

    # ---- snapshots -----------------------------------------------------------------------------------------

    def snapshot(self, slot: int) -> Snapshot:
        """The slot's committed states, sharing its pages. Give it back with `drop`.

        Raises:
            BackendError: the slot has open rows.
        """
        held = self._slots[slot]
        if held.open:
            raise BackendError(f"slot {slot} has open rows: commit them before a snapshot")
        saved: dict[Group, Saved] = {
            group: self._store.save(slot, group) for group in self._groups if self._fixed[group]
        }
        tables = self._tables.keep(slot)
        return Snapshot(
            identity=self.identity,
            tokens={group: tuple(held.tokens[group]) for group in self._groups},
            tables=tables,
            saved=saved,
            bytes=snapshot_bytes(tables, saved, self._session, self.geometry),
        )

    def restore(self, slot: int, snapshot: Snapshot) -> None:
        """The slot becomes what was kept, whatever it held; the snapshot stays usable.

        Raises:
            BackendError: the snapshot is of other weights, or of a backend that computes otherwise.
        """
        if snapshot.identity != self.identity:
            raise BackendError(f"a snapshot of {snapshot.identity} does not fit {self.identity}")
        self._tables.release(slot)
        self._adopt(slot, snapshot)

    def _adopt(self, slot: int, snapshot: Snapshot) -> None:
        self._slots[slot] = _Slot({group: list(snapshot.tokens[group]) for group in self._groups}, {})
        self._tables.adopt(slot, snapshot.tables)
        for group, saved in snapshot.saved.items():
            self._store.load(slot, group, saved)

    def drop(self, snapshot: Snapshot) -> None:
        """Give back what a snapshot holds; it must not be used afterwards."""
        for key, pages in snapshot.tables.items():
            self._tables.forget(key, pages)

    def export(self, snapshot: Snapshot) -> Mapping[str, NDArray[np.generic]]:
        """A snapshot's contents on the host, for `import_`."""
        return export_snapshot(snapshot, self._store)

    def import_(self, arrays: Mapping[str, NDArray[np.generic]]) -> Snapshot:
        """A snapshot from what `export` gave, here or in another process.

        Raises:
            OutOfPages: there is no room for it; nothing was changed.
        """
        return import_snapshot(arrays, self.identity, self._store, self._tables, self._session, self.geometry)

    # ---- memory --------------------------------------------------------------------------------------------

    def memory(self) -> Memory:
        """What is held and what could still be given."""
        full = [self._tables.pool(key) for key in self._tables.keys("main") if key.window is None]
        return Memory(
            lanes=self.lanes,
            lanes_free=len(self._free),
            positions=min((pool.capacity for pool in full), default=0) * PAGE,
            positions_free=min((pool.free for pool in full), default=0) * PAGE,
            positions_spare=min((pool.spare for pool in full), default=0) * PAGE,
            bytes=self._store.bytes,
            pools=tuple(
                _pool(key, self._tables.pool(key)) for group in self._groups for key in self._tables.keys(group)
            ),
        )

    def room(self) -> int:
        """Positions that one sequence could still be given now, up to the model's window."""
        window = self.geometry.window
        for group in self._groups:
            for key in self._tables.keys(group):
                free = self._tables.pool(key).free
                # A windowed table needs its window and one chunk at most, however long the sequence is.
                if key.window is None or free < pages_a_sequence(key, window, self.chunk):
                    window = min(window, free * PAGE)
        return window

    def pages(self) -> dict[TableKey, Pages]:
        """What every pool could still give."""
        return {
            key: Pages(pool.capacity, pool.free, pool.spare)
            for group in self._groups
            for key in self._tables.keys(group)
            for pool in (self._tables.pool(key),)
        }

    def pages_for(self, length: int) -> dict[TableKey, int]:
        """The most pages that one sequence of so many positions holds."""
        return {key: pages_a_sequence(key, length, self.chunk) for key in self.pages()}

    def tables(self, slot: int) -> dict[TableKey, tuple[int, ...]]:
        """The slot's pages in the order of their positions, table by table."""
        return {key: self._tables.pages(slot, key) for key in self.pages()}

    def pages_held(self, slot: int) -> dict[TableKey, int]:
        """Pages in the slot's tables."""
        return {key: len(pages) - pages.count(GONE) for key, pages in self.tables(slot).items()}

    def spare_in(self, snapshot: Snapshot) -> dict[TableKey, int]:
        """Pages of a snapshot that no slot holds."""
        return self._tables.spare_in(snapshot.tables)

    @property
    def kept_bytes(self) -> int:
        """Device memory of the pages that snapshots hold, each page counted once; without copies of fixed-size states."""
        return sum(
            self._session.page_bytes(spec) * self._tables.pool(TableKey.of(spec)).kept
            for spec in self.geometry.states.values()
            if is_paged(spec)
        )

    def close(self) -> None:
        """Free the device."""
        self._session.close()


def _pool(key: TableKey, pool: PagePool) -> Pool:
    name = key.group if key.window is None else f"{key.group}-window-{key.window}"
    used = pool.capacity - pool.free - pool.spare
    return Pool(name, pool.capacity * PAGE, used * PAGE, pool.kept * PAGE)

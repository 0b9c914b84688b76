"""Running one operation over a backend without a Runner: sequences, scattered pages, Steps in any arrangement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.arrays import A
from tensorfold.contracts.backend import Session
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import KV, PAGE, Group, IndexKeys, Latent, StateSpec, TableKey
from tensorfold.contracts.step import Kind, Segment, Step
from tensorfold.testing.op_kit import Kit

__all__ = ["OpCase", "Part", "Trial"]

Rows: TypeAlias = tuple[NDArray[Any], ...]
"""An operation's inputs, `[R, ...]` each."""

GONE = -1
LENGTH = 400
"""Positions for which a sequence has inputs."""


@dataclass(frozen=True, slots=True)
class OpCase:
    """One operation at one shape."""

    name: str
    inputs: Callable[[np.random.Generator, int], Rows]
    """So many rows of inputs."""
    run: Callable[[Ops[Any], Step[Any], Kit[Any], tuple[Any, ...]], tuple[Any, ...]]
    """The operation over a Step's inputs, `[R, ...]` out."""
    states: Mapping[str, StateSpec] = field(default_factory=dict[str, StateSpec])
    prefix: int = 0
    """Positions that sequences hold before rows begin; the sequences of a trial hold different shares of it."""
    axes: bool = False
    """Positions have three axes."""


@dataclass(frozen=True, slots=True)
class Part:
    """A segment of a trial's Step."""

    sequence: int
    rows: int
    """Rows that are right and kept."""
    wrong: int = 0
    """Rows after them that are not of the sequence, and are dropped by the commit."""


@dataclass(slots=True)
class _Sequence:
    slot: int
    inputs: Rows
    wrong: Rows
    length: int = 0
    tables: dict[TableKey, list[int]] = field(default_factory=dict[TableKey, list[int]])


class Trial(Generic[A]):
    """One case on one session, with as many sequences as asked for. Pages are handed out in a scrambled order."""

    def __init__(
        self, case: OpCase, session: Session[A], *, sequences: int = 3, pages: int = 30, kit: Kit[A] | None = None
    ) -> None:
        self.case = case
        self.session = session
        self.kit = Kit(session) if kit is None else kit
        self.keys = {TableKey.of(spec) for spec in case.states.values() if isinstance(spec, KV | Latent | IndexKeys)}
        self.slots = sequences + 1
        self.store = session.store(case.states, dict.fromkeys(self.keys, pages), self.slots)
        self._ops: dict[Kind, Ops[A]] = {
            "chunk": session.ops("chunk", self.store, case.states),
            "rows": session.ops("rows", self.store, case.states),
        }
        scrambled = np.random.default_rng(5)
        self._free = {key: [int(page) for page in scrambled.permutation(pages)] for key in self.keys}
        self._sequences = [
            # Slots are not in the order of the sequences, and the first one is not used.
            _Sequence(
                sequences - number,
                case.inputs(np.random.default_rng([number, 1]), LENGTH),
                case.inputs(np.random.default_rng([number, 2]), LENGTH),
                tables={key: [] for key in self.keys},
            )
            for number in range(sequences)
        ]
        self.outputs: list[dict[int, NDArray[np.float32]]] = [{} for _ in range(sequences)]
        """By sequence and position, every output row in one vector."""

    def length(self, sequence: int) -> int:
        """Committed positions."""
        return self._sequences[sequence].length

    def table(self, sequence: int, key: TableKey) -> tuple[int, ...]:
        """The sequence's pages."""
        return tuple(self._sequences[sequence].tables[key])

    # ---- running ---------------------------------------------------------------------------------------------

    def feed(self, kind: Kind, parts: Sequence[Part], *, commit: bool = True) -> None:
        """One Step over the next rows of some sequences; outputs of right rows are kept."""
        step, inputs = self._step(kind, parts)
        results = self.case.run(self._ops[kind], step, self.kit, inputs)
        self.session.finish()
        host = [np.array(self.session.numpy(each)).reshape(step.rows, -1) for each in results]
        flat = np.concatenate(host, 1).astype(np.float32)
        for part, (first, _) in zip(parts, step.bounds, strict=True):
            start = self._sequences[part.sequence].length
            for row in range(part.rows):
                self.outputs[part.sequence][start + row] = flat[first + row]
        if commit:
            for part in parts:
                self.commit(part, part.rows)

    def commit(self, part: Part, kept: int, groups: Sequence[Group] = ("main", "draft")) -> None:
        """Keep the first rows of a part; pages behind a window are given back."""
        each = self._sequences[part.sequence]
        for group in groups:
            self.store.commit(each.slot, group, each.length, part.rows + part.wrong, each.length + kept)
        each.length += kept
        for key, table in each.tables.items():
            for number, page in enumerate(table):
                behind = key.window is not None and (number + 1) * PAGE <= each.length - key.window + 1
                if page != GONE and (behind or number * PAGE >= each.length):
                    self._free[key].append(page)
                    table[number] = GONE
            while table and table[-1] == GONE and (len(table) - 1) * PAGE >= each.length:
                table.pop()

    def chunks(self, sequence: int, sizes: Sequence[int]) -> None:
        """Chunk Steps, one after the other."""
        for size in sizes:
            self.feed("chunk", [Part(sequence, size)])

    # ---- moving states ---------------------------------------------------------------------------------------

    def copy(self, source: int, target: int) -> None:
        """The empty target becomes the source: pages copied, fixed-size states saved and loaded."""
        old, new = self._sequences[source], self._sequences[target]
        for key, table in old.tables.items():
            for page in table:
                new.tables[key].append(page if page == GONE else self._free[key].pop(0))
                if page != GONE:
                    self.store.copy_page(key, page, new.tables[key][-1])
        for group in self._groups():
            self.store.load(new.slot, group, self.store.save(old.slot, group))
        new.length, new.inputs, new.wrong = old.length, old.inputs, old.wrong

    def receive(self, other: Trial[A], source: int, target: int) -> None:
        """The empty target becomes a sequence of another trial, by way of the host."""
        old, new = other._sequences[source], self._sequences[target]
        for key, table in old.tables.items():
            for page in table:
                new.tables[key].append(page if page == GONE else self._free[key].pop(0))
                if page != GONE:
                    self.store.import_page(key, new.tables[key][-1], other.store.export_page(key, page))
        for group in self._groups():
            exported = other.store.save(old.slot, group).export()
            self.store.load(new.slot, group, self.store.import_saved(group, exported))
        new.length, new.inputs, new.wrong = old.length, old.inputs, old.wrong

    def clear(self, sequence: int) -> None:
        """The sequence becomes empty; its pages go to whoever comes next, with what is in them."""
        each = self._sequences[sequence]
        for key, table in each.tables.items():
            # Given out first again, so that the next sequence finds what this one left.
            self._free[key][:0] = [page for page in table if page != GONE]
            table.clear()
        for group in self._groups():
            self.store.reset(each.slot, group)
        each.length = 0
        self.outputs[sequence].clear()

    def spoil(self, sequence: int) -> None:
        """From here on the sequence's inputs are NaN wherever they are floats, as those of a broken model would be."""
        each = self._sequences[sequence]
        each.inputs = tuple(
            np.full_like(values, np.nan) if values.dtype.kind == "f" else values for values in each.inputs
        )

    def mend(self, sequence: int) -> None:
        """The sequence's inputs are right again."""
        self._sequences[sequence].inputs = self.case.inputs(np.random.default_rng([sequence, 1]), LENGTH)

    def _groups(self) -> list[Group]:
        """Groups that have fixed-size states."""
        groups: tuple[Group, ...] = ("main", "draft")
        return [
            group
            for group in groups
            if any(
                each.group == group and not isinstance(each, KV | Latent | IndexKeys)
                for each in self.case.states.values()
            )
        ]

    # ---- Steps -----------------------------------------------------------------------------------------------

    def _step(self, kind: Kind, parts: Sequence[Part]) -> tuple[Step[A], tuple[A, ...]]:
        segments: list[Segment] = []
        bounds: list[tuple[int, int]] = []
        pieces: list[Rows] = []
        total = 0
        for part in parts:
            each = self._sequences[part.sequence]
            start, right, count = each.length, each.length + part.rows, part.rows + part.wrong
            pieces.append(
                tuple(
                    np.concatenate([good[start:right], bad[right : right + part.wrong]])
                    for good, bad in zip(each.inputs, each.wrong, strict=True)
                )
            )
            segments.append(Segment(each.slot, (0,) * count, start, kind=kind))
            bounds.append((total, total + count))
            total += count
            for key, table in each.tables.items():
                while len(table) * PAGE < start + count:
                    table.append(self._free[key].pop(0))
        positions = np.concatenate(
            [each.start + np.arange(len(each.tokens), dtype=np.int32) for each in segments]
        ).astype(np.int32)
        placed = np.stack([positions, positions // 2, positions // 3]) if self.case.axes else positions
        ids = np.zeros(total, np.int32)
        step: Step[A] = Step(
            kind=kind,
            segments=tuple(segments),
            bounds=tuple(bounds),
            ids=self.session.array(ids),
            positions=self.session.array(placed),
            host_ids=ids,
            host_positions=placed,
            history=lambda n: np.full((total, n), -1, np.int64),
            pages={
                key: tuple(tuple(self._sequences[part.sequence].tables[key]) for part in parts) for key in self.keys
            },
            wanted=None,
        )
        inputs = tuple(
            self.session.array(np.concatenate([piece[number] for piece in pieces])) for number in range(len(pieces[0]))
        )
        return step, inputs

"""The memory of all states of one model: page pools, and a fixed-size part for each slot.

A pool of a paged state has one array for each of its columns (keys and values, latent and rotary key), laid out
`[pages, heads, rows of a page, width]`, so that a page of one head is a matrix. Which page holds what is the core's
business; nothing here looks at a sequence.

Fixed-size states are `[slots, ...]`. A stateful operation leaves its rows open (`Open`) until `commit` says how many
are kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.primitives import Element, Primitives
from tensorfold.contracts.arrays import A, A_co
from tensorfold.contracts.backend import Saved
from tensorfold.contracts.states import (
    KV,
    PAGE,
    Conv,
    Group,
    IndexKeys,
    Latent,
    PagedSpec,
    Recent,
    Recurrent,
    SlotSpec,
    StateSpec,
    TableKey,
)
from tensorfold.errors import BackendError

__all__ = ["Column", "ComposedStore", "Open", "SavedStates", "columns", "fixed_shape", "state_bytes", "store_bytes"]

S = TypeVar("S", KV, Latent, IndexKeys, Conv, Recent, Recurrent)


@dataclass(frozen=True, slots=True)
class Column:
    """One array of a paged state: `[pages, heads, rows, width]`."""

    heads: int
    rows: int
    """Rows of a page: 64, or fewer when one row stands for several positions."""
    width: int


def columns(spec: PagedSpec) -> tuple[Column, ...]:
    """What a paged state keeps of each position."""
    match spec:
        case KV(heads=heads, k_dim=k_dim, v_dim=v_dim):
            return (Column(heads, PAGE, k_dim), Column(heads, PAGE, v_dim))
        case Latent(latent=latent, rope=0):
            return (Column(1, PAGE, latent),)
        case Latent(latent=latent, rope=rope):
            return (Column(1, PAGE, latent), Column(1, PAGE, rope))
        case IndexKeys(dim=dim, pool=pool):
            return (Column(1, PAGE // pool, dim),)


def fixed_shape(spec: SlotSpec) -> tuple[tuple[int, ...], Element]:
    """What one slot keeps of a fixed-size state, and in which type."""
    match spec:
        case Conv(channels=channels) | Recent(channels=channels):
            return (spec.keep, channels), "act"
        case Recurrent(shape=shape):
            return shape, "real"


def state_bytes(spec: StateSpec, primitives: Primitives[Any]) -> int:
    """Bytes of one page of a paged state, or of one slot of a fixed-size state."""
    if isinstance(spec, KV | Latent | IndexKeys):
        elements = sum(column.heads * column.rows * column.width for column in columns(spec))
        return elements * primitives.itemsize("act")
    shape, element = fixed_shape(spec)
    return math.prod(shape) * primitives.itemsize(element)


def store_bytes(
    states: Mapping[str, StateSpec], pages: Mapping[TableKey, int], slots: int, primitives: Primitives[Any]
) -> int:
    """Bytes of all states, with so many pages in each pool and so many slots."""
    return sum(
        state_bytes(spec, primitives)
        * (pages[TableKey.of(spec)] if isinstance(spec, KV | Latent | IndexKeys) else slots)
        for spec in states.values()
    )


class Open(Protocol[A_co]):
    """Rows of one slot and state that a Step has computed and nobody has kept yet."""

    def kept(self, rows: int) -> A_co:
        """The state after the first `rows` of them, at least one."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class SavedStates(Generic[A]):
    """A copy of one slot's fixed-size states."""

    primitives: Primitives[A]
    states: Mapping[str, A]
    bytes: int

    def export(self) -> Mapping[str, NDArray[Any]]:
        """The stored bits by name."""
        return {name: self.primitives.export(state) for name, state in self.states.items()}


class ComposedStore(Generic[A]):
    """The states of one model, over any array library."""

    def __init__(
        self,
        primitives: Primitives[A],
        states: Mapping[str, StateSpec],
        pages: Mapping[TableKey, int],
        slots: int,
    ) -> None:
        self._p = primitives
        self._specs = dict(states)
        self._pools: dict[str, list[A]] = {}
        self._fixed: dict[str, A] = {}
        self._open: dict[tuple[int, str], Open[A]] = {}
        self._bytes = store_bytes(states, pages, slots, primitives)
        for name, spec in states.items():
            if isinstance(spec, KV | Latent | IndexKeys):
                count = pages[TableKey.of(spec)]
                self._pools[name] = [
                    primitives.zeros((count, column.heads, column.rows, column.width), "act")
                    for column in columns(spec)
                ]
            else:
                shape, element = fixed_shape(spec)
                self._fixed[name] = primitives.zeros((slots, *shape), element)

    @property
    def bytes(self) -> int:
        """Device memory held."""
        return self._bytes

    # ---- for operations --------------------------------------------------------------------------------------

    def spec(self, name: str, kind: type[S]) -> S:
        """The declaration of a state.

        Raises:
            BackendError: it is not declared, or as another kind.
        """
        spec = self._specs.get(name)
        if not isinstance(spec, kind):
            declared = "is not declared" if spec is None else f"is declared as {type(spec).__name__}"
            raise BackendError(f"state {name!r} {declared}, and this operation needs {kind.__name__}")
        return spec

    def pool(self, name: str) -> list[A]:
        """The arrays of a paged state, `[pages, heads, rows, width]` each."""
        return self._pools[name]

    def write(self, name: str, index: A, rows: Sequence[A]) -> None:
        """Put rows `[n, heads, width]`, one array a column, where `index` `[n, heads]` says.

        The index counts rows of the pool laid end to end. What is not finite is cut to what is: a failed sequence
        must not leave NaN in a page, for the page's next owner multiplies what it does not see by zero.
        """
        pool = self._pools[name]
        for number, new in enumerate(rows):
            old = pool[number]
            flat = self._p.reshape(old, (-1, old.shape[-1]))
            stored = self._p.finite(self._p.cast(new, "act"))
            pool[number] = self._p.reshape(self._p.put(flat, index, stored), old.shape)

    def committed(self, name: str, slots: A) -> A:
        """A copy of the committed states of these slots, `[n, ...]`."""
        return self._p.take(self._fixed[name], slots)

    def leave_open(self, slot: int, name: str, rows: Open[A]) -> None:
        """Hand over rows that wait for `commit`.

        Raises:
            BackendError: the slot has open rows of this state already.
        """
        if (slot, name) in self._open:
            raise BackendError(f"slot {slot} has open rows in state {name!r}: commit them before the next step")
        self._open[slot, name] = rows

    # ---- for the core ----------------------------------------------------------------------------------------

    def commit(self, slot: int, group: Group, start: int, rows: int, length: int) -> None:
        """Of the `rows` open rows that began at `start`, keep the first `length - start`.

        A state without open rows stays as it is: the step failed before it came to it.
        """
        kept = length - start
        if not 0 <= kept <= rows:
            raise BackendError(f"of {rows} open rows from {start}, {kept} cannot be kept")
        for name in self._fixed_of(group):
            opened = self._open.pop((slot, name), None)
            if opened is not None and kept:
                self._set(name, slot, opened.kept(kept))

    def reset(self, slot: int, group: Group) -> None:
        """The slot's fixed-size states become zeros; open rows are dropped."""
        for name in self._fixed_of(group):
            self._open.pop((slot, name), None)
            shape, element = self._shape_of(name)
            self._set(name, slot, self._p.zeros(shape, element))

    def save(self, slot: int, group: Group) -> SavedStates[A]:
        """A copy of the slot's fixed-size states.

        Raises:
            BackendError: rows are open.
        """
        names = self._fixed_of(group)
        for name in names:
            if (slot, name) in self._open:
                raise BackendError(f"slot {slot} has open rows in state {name!r}: commit them before they are saved")
        index = self._p.array(np.asarray([slot], dtype=np.int64))
        states: dict[str, A] = {name: self._p.take(self._fixed[name], index)[0] for name in names}
        return SavedStates(self._p, states, self._bytes_of(names))

    def load(self, slot: int, group: Group, saved: Saved) -> None:
        """The slot's fixed-size states become those saved; open rows are dropped."""
        if not isinstance(saved, SavedStates):
            raise BackendError("a saved slot of another backend cannot be loaded")
        ours = cast("SavedStates[A]", saved)
        for name in self._fixed_of(group):
            self._open.pop((slot, name), None)
            self._set(name, slot, ours.states[name])

    def import_saved(self, group: Group, states: Mapping[str, NDArray[Any]]) -> SavedStates[A]:
        """What `SavedStates.export` gave, back on the device."""
        names = self._fixed_of(group)
        missing = sorted(set(names) - set(states))
        if missing:
            raise BackendError(f"a saved slot lacks the states {', '.join(missing)}")
        restored: dict[str, A] = {}
        for name in names:
            shape, element = self._shape_of(name)
            restored[name] = self._restored(states[name], shape, element, name)
        return SavedStates(self._p, restored, self._bytes_of(names))

    def copy_page(self, table: TableKey, source: int, target: int) -> None:
        """Copy one page of every state of a table."""
        index = self._p.array(np.asarray([source], dtype=np.int64))
        for name in self._paged_of(table):
            for number, column in enumerate(self._pools[name]):
                self._pools[name][number] = self._put_one(column, target, self._p.take(column, index))

    def export_page(self, table: TableKey, page: int) -> Mapping[str, NDArray[Any]]:
        """The stored bits of one page, `STATE/COLUMN` to `[heads, rows, width]`."""
        index = self._p.array(np.asarray([page], dtype=np.int64))
        return {
            f"{name}/{number}": self._p.export(self._p.take(column, index)[0])
            for name in self._paged_of(table)
            for number, column in enumerate(self._pools[name])
        }

    def import_page(self, table: TableKey, page: int, states: Mapping[str, NDArray[Any]]) -> None:
        """What `export_page` gave, back on the device."""
        for name in self._paged_of(table):
            for number, column in enumerate(self._pools[name]):
                key = f"{name}/{number}"
                if key not in states:
                    raise BackendError(f"an exported page lacks {key}")
                restored = self._restored(states[key], column.shape[1:], "act", key)
                one = self._p.reshape(restored, (1, *column.shape[1:]))
                self._pools[name][number] = self._put_one(column, page, one)

    # ---- inside ----------------------------------------------------------------------------------------------

    def _paged_of(self, table: TableKey) -> list[str]:
        return [
            name
            for name, spec in self._specs.items()
            if isinstance(spec, KV | Latent | IndexKeys) and TableKey.of(spec) == table
        ]

    def _fixed_of(self, group: Group) -> list[str]:
        return [name for name in self._fixed if self._specs[name].group == group]

    def _shape_of(self, name: str) -> tuple[tuple[int, ...], Element]:
        spec = self._specs[name]
        if isinstance(spec, KV | Latent | IndexKeys):
            raise BackendError(f"state {name!r} lives in pages, not in a slot")
        return fixed_shape(spec)

    def _bytes_of(self, names: Sequence[str]) -> int:
        return sum(state_bytes(self._specs[name], self._p) for name in names)

    def _set(self, name: str, slot: int, state: A) -> None:
        whole = self._fixed[name]
        self._fixed[name] = self._put_one(whole, slot, self._p.reshape(state, (1, *whole.shape[1:])))

    def _put_one(self, target: A, place: int, value: A) -> A:
        return self._p.put(target, self._p.array(np.asarray([place], dtype=np.int64)), value)

    def _restored(self, values: NDArray[Any], shape: tuple[int, ...], element: Element, name: str) -> A:
        if tuple(values.shape) != tuple(shape):
            raise BackendError(f"{name} was exported with shape {values.shape}, and its state has {tuple(shape)}")
        return self._p.restore(values, element)

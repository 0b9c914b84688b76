"""The memory of all states: pages of keys and values as the kernels read them, everything else as the composed
operations have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypedDict, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.primitives import Primitives
from tensorfold.compute.store import ComposedStore, SavedStates, state_bytes
from tensorfold.contracts.backend import Saved
from tensorfold.contracts.states import KV, PAGE, Conv, Group, Recurrent, StateSpec, TableKey, is_paged
from tensorfold.contracts.step import Step
from tensorfold.errors import BackendError
from tensorfold_backend_cpu.machine import Machine
from tensorfold_backend_cpu.memory import Memory
from tensorfold_backend_cpu.rows import Rows
from tensorfold_backend_cpu.slots import SlotCell

__all__ = ["CpuStore", "KeyPool", "page_bytes"]

S = TypeVar("S", Conv, Recurrent)


def _line(width: int) -> int:
    """A value's width, up to whole vectors."""
    return (width + 15) // 16 * 16


def page_bytes(spec: StateSpec, half: bool, primitives: Primitives[NDArray[Any]]) -> int:
    """Bytes of one page of a paged state, or of one slot of a fixed-size state."""
    if isinstance(spec, KV):
        return spec.heads * PAGE * (spec.k_dim + _line(spec.v_dim)) * (2 if half else 4)
    return state_bytes(spec, primitives)


class PoolWords(TypedDict):
    """The fields of a call that say what a pool is."""

    keys: int
    values: int
    kv_heads: int
    k_width: int
    v_width: int
    v_line: int
    half: int


@dataclass(frozen=True, eq=False)
class KeyPool:
    """Pages of one state. Lanes behind a value's width are zeros."""

    spec: KV
    half: bool
    keys: NDArray[np.floating[Any]]
    """`[pages, heads, k_dim, 64]`."""
    values: NDArray[np.floating[Any]]
    """`[pages, heads, 64, v_line]`."""

    @property
    def v_line(self) -> int:
        """Numbers of a value, up to whole vectors."""
        return int(self.values.shape[-1])

    @cached_property
    def addresses(self) -> tuple[int, int]:
        """Of keys and of values."""
        return int(self.keys.ctypes.data), int(self.values.ctypes.data)

    def words(self) -> PoolWords:
        """For a call that writes to it."""
        keys, values = self.addresses
        return {
            "keys": keys,
            "values": values,
            "kv_heads": self.spec.heads,
            "k_width": self.spec.k_dim,
            "v_width": self.spec.v_dim,
            "v_line": self.v_line,
            "half": int(self.half),
        }

    @staticmethod
    def of(spec: KV, pages: int, *, half: bool) -> KeyPool:
        """Zeros, which take memory only when they are written."""
        kind = np.dtype(np.float16 if half else np.float32)

        def zeros(*shape: int) -> NDArray[Any]:
            return Memory(int(np.prod(shape)) * kind.itemsize).bytes.view(kind).reshape(shape)

        return KeyPool(
            spec,
            half,
            zeros(pages, spec.heads, spec.k_dim, PAGE),
            zeros(pages, spec.heads, PAGE, _line(spec.v_dim)),
        )


class CpuStore:
    """The states of one model."""

    def __init__(
        self,
        machine: Machine,
        primitives: Primitives[NDArray[Any]],
        states: Mapping[str, StateSpec],
        pages: Mapping[TableKey, int],
        slots: int,
        *,
        half: bool,
    ) -> None:
        self._primitives = primitives
        self._pools = {
            name: KeyPool.of(spec, pages[TableKey.of(spec)], half=half)
            for name, spec in states.items()
            if isinstance(spec, KV)
        }
        self._cells = {
            name: SlotCell(machine, spec, slots) for name, spec in states.items() if isinstance(spec, Conv | Recurrent)
        }
        self._by_group: dict[Group, dict[str, SlotCell]] = {"main": {}, "draft": {}}
        for name, cell in self._cells.items():
            self._by_group[cell.spec.group][name] = cell
        others = {name: spec for name, spec in states.items() if not isinstance(spec, KV | Conv | Recurrent)}
        self.composed: ComposedStore[NDArray[Any]] = ComposedStore(primitives, others, pages, slots)
        """States that composed operations use."""
        self.bytes = sum(
            page_bytes(spec, half, primitives) * (pages[TableKey.of(spec)] if is_paged(spec) else slots)
            for spec in states.values()
        )
        """Device memory held."""

    def pool(self, name: str) -> KeyPool:
        """The pages of a declared `KV` state.

        Raises:
            BackendError: there is no such state.
        """
        found = self._pools.get(name)
        if found is None:
            raise BackendError(f"state {name!r} is not declared as KV, and this operation needs KV")
        return found

    def slot_cell(self, name: str, kind: type[S]) -> tuple[SlotCell, S]:
        """A declared fixed-size state that kernels compute in place, and its declaration.

        Raises:
            BackendError: there is no such state.
        """
        cell = self._cells.get(name)
        if cell is None or not isinstance(cell.spec, kind):
            raise BackendError(f"state {name!r} is not declared as {kind.__name__}, and this operation needs that")
        return cell, cell.spec

    def cells_of(self, step: Step[Rows]) -> tuple[SlotCell, ...]:
        """Those that were pointed to a Step, and to no other since."""
        return tuple(each for each in self._cells.values() if each.shows(step))

    # ---- for the core ----------------------------------------------------------------------------------------

    def commit(self, slot: int, group: Group, start: int, rows: int, length: int) -> None:
        """Of the `rows` open rows that began at `start`, keep the first `length - start`."""
        self.composed.commit(slot, group, start, rows, length)
        for cell in self._by_group[group].values():
            cell.commit(slot, length - start)

    def reset(self, slot: int, group: Group) -> None:
        """The slot's fixed-size states become zeros; open rows are dropped."""
        self.composed.reset(slot, group)
        for cell in self._by_group[group].values():
            cell.reset(slot)

    def save(self, slot: int, group: Group) -> Saved:
        """A copy of the slot's fixed-size states, with no rows open."""
        others = self.composed.save(slot, group)
        own = {name: cell.read(slot) for name, cell in self._by_group[group].items()}
        return self._saved(own, others)

    def load(self, slot: int, group: Group, saved: Saved) -> None:
        """The slot's fixed-size states become those saved."""
        self.composed.load(slot, group, saved)
        states = cast("SavedStates[NDArray[Any]]", saved).states
        for name, cell in self._by_group[group].items():
            cell.write(slot, states[name])

    def import_saved(self, group: Group, states: Mapping[str, NDArray[Any]]) -> Saved:
        """What `Saved.export` gave."""
        others = self.composed.import_saved(group, states)
        own: dict[str, NDArray[Any]] = {}
        for name, cell in self._by_group[group].items():
            given = states.get(name)
            if given is None:
                raise BackendError(f"a saved slot lacks the state {name}")
            if given.shape != cell.shape:
                raise BackendError(f"{name} was exported with shape {given.shape}, and its state has {cell.shape}")
            own[name] = np.array(given, np.float32)
        return self._saved(own, others)

    def _saved(self, own: Mapping[str, NDArray[Any]], others: SavedStates[NDArray[Any]]) -> Saved:
        size = others.bytes + sum(each.nbytes for each in own.values())
        return SavedStates(self._primitives, {**others.states, **own}, size)

    def copy_page(self, table: TableKey, source: int, target: int) -> None:
        """Copy one page of every state of a table."""
        for pool in self._of(table).values():
            pool.keys[target] = pool.keys[source]
            pool.values[target] = pool.values[source]
        self.composed.copy_page(table, source, target)

    def export_page(self, table: TableKey, page: int) -> Mapping[str, NDArray[Any]]:
        """A copy of one page of every state of a table, in the order in which it lies."""
        exported = dict(self.composed.export_page(table, page))
        for name, pool in self._of(table).items():
            exported[f"{name}/keys"] = pool.keys[page].copy()
            exported[f"{name}/values"] = pool.values[page].copy()
        return exported

    def import_page(self, table: TableKey, page: int, states: Mapping[str, NDArray[Any]]) -> None:
        """What `export_page` gave."""
        for name, pool in self._of(table).items():
            for part, stored in (("keys", pool.keys), ("values", pool.values)):
                given = states.get(f"{name}/{part}")
                if given is None or given.shape != stored.shape[1:] or given.dtype != stored.dtype:
                    found = "is missing" if given is None else f"is {given.dtype} {given.shape}"
                    raise BackendError(
                        f"{name}/{part} of an exported page {found}, and must be {stored.dtype} {stored.shape[1:]}"
                    )
                stored[page] = given
        self.composed.import_page(table, page, states)

    def _of(self, table: TableKey) -> Mapping[str, KeyPool]:
        return {name: pool for name, pool in self._pools.items() if TableKey.of(pool.spec) == table}

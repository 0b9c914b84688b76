"""The memory of all states, computed when the core is told that it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from numpy.typing import NDArray

from tensorfold.compute.store import ComposedStore, SavedStates
from tensorfold.contracts.states import Group, StateSpec, TableKey
from tensorfold_backend_mlx.primitives import MlxPrimitives, compute

__all__ = ["MlxStore"]


class MlxStore(ComposedStore[mx.array]):
    """Pools and fixed-size states.

    A step writes to a pool's own memory as long as nobody else holds the array that the pool was before, so nothing
    that is handed out may still be a promise over it.
    """

    def __init__(
        self,
        primitives: MlxPrimitives,
        states: Mapping[str, StateSpec],
        pages: Mapping[TableKey, int],
        slots: int,
    ) -> None:
        super().__init__(primitives, states, pages, slots)
        self._primitives = primitives
        compute(*self.arrays())

    def arrays(self) -> list[mx.array]:
        """Every pool and every fixed-size state, as promises."""
        return [*(column for pool in self._pools.values() for column in pool), *self._fixed.values()]

    def commit(self, slot: int, group: Group, start: int, rows: int, length: int) -> None:
        self._primitives.here()
        super().commit(slot, group, start, rows, length)

    def save(self, slot: int, group: Group) -> SavedStates[mx.array]:
        """A copy of the slot's fixed-size states, computed: a promise would hold all slots' states."""
        self._primitives.here()
        saved = super().save(slot, group)
        compute(*saved.states.values())
        return saved

    def import_saved(self, group: Group, states: Mapping[str, NDArray[Any]]) -> SavedStates[mx.array]:
        saved = super().import_saved(group, states)
        compute(*saved.states.values())
        return saved

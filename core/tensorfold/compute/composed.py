"""Every operation of `contracts.ops`, written once over `Primitives`: the start of a backend.

With numpy this is the reference that all backends are held against. A new backend supplies the primitives, gets a
working session from `ComposedSession`, and overrides the operations that matter for its speed. Both kinds of Step
share the code here, so a backend that overrides nothing computes chunks and rows to the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.composed_recurrent import RecurrentOps
from tensorfold.compute.packing import ComposedPacker
from tensorfold.compute.primitives import Primitives
from tensorfold.compute.sampling import draw_rows
from tensorfold.compute.store import ComposedStore, state_bytes
from tensorfold.contracts.arrays import A
from tensorfold.contracts.backend import DeviceMemory, StateStore
from tensorfold.contracts.family import Geometry
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.sampling import Draw, Drawn
from tensorfold.contracts.states import StateSpec, TableKey
from tensorfold.contracts.step import Kind
from tensorfold.contracts.weights import Packer
from tensorfold.errors import BackendError

__all__ = ["ComposedOps", "ComposedSession"]


class ComposedOps(RecurrentOps[A]):
    """All operations. Overrides keep the rules of `contracts.ops`; `testing.backends` checks them."""


class ComposedSession(ABC, Generic[A]):
    """A session over primitives. A backend says what it runs on, and gives its own operations if it has any."""

    def __init__(self, primitives: Primitives[A]) -> None:
        self.p = primitives
        self.packer: Packer[A] = ComposedPacker(primitives)

    # ---- what a backend says ---------------------------------------------------------------------------------

    @property
    @abstractmethod
    def device(self) -> str:
        """For people."""

    @property
    @abstractmethod
    def dtype(self) -> str:
        """Of activations."""

    @property
    @abstractmethod
    def numerics(self) -> str:
        """Everything that decides bits."""

    @property
    @abstractmethod
    def chunk(self) -> int:
        """Prompt tokens in one `chunk` Step."""

    @abstractmethod
    def memory(self) -> DeviceMemory:
        """Of the device that holds the states."""

    def chunk_equals_rows(self, geometry: Geometry) -> bool:
        """Composed operations do not tell the kinds apart; a backend that overrides one kind says no here."""
        del geometry
        return True

    def composed_ops(self, kind: Kind, store: ComposedStore[A]) -> Ops[A]:
        """The operations of one kind."""
        del kind
        return ComposedOps(self.p, store)

    def finish(self) -> None:
        """Nothing to wait for where calls return when they are done."""

    def close(self) -> None:
        """Nothing to free but memory."""

    # ---- what follows ----------------------------------------------------------------------------------------

    def page_bytes(self, spec: StateSpec) -> int:
        """Bytes of one page of a paged state, or of one slot of a fixed-size state."""
        return state_bytes(spec, self.p)

    def store(self, states: Mapping[str, StateSpec], pages: Mapping[TableKey, int], slots: int) -> StateStore:
        """All states, as zeros."""
        return ComposedStore(self.p, states, pages, slots)

    def ops(self, kind: Kind, store: StateStore, states: Mapping[str, StateSpec]) -> Ops[A]:
        """The operations of one kind over a store that this session made."""
        del states
        if not isinstance(store, ComposedStore):
            raise BackendError("these operations run over a store of their own session")
        return self.composed_ops(kind, cast("ComposedStore[A]", store))

    def array(self, values: NDArray[Any]) -> A:
        """Upload."""
        return self.p.array(values)

    def numpy(self, x: A) -> NDArray[np.float32]:
        """Download as float32."""
        return self.p.numpy(x).astype(np.float32, copy=False)

    def sample(self, logits: A, draws: Sequence[Draw]) -> list[Drawn]:
        """One token for each draw, by the shared rule."""
        return draw_rows(self.numpy(logits), draws)

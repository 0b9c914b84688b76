"""What a hardware backend offers: operations of both kinds, a state store, a packer and a sampler. Nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tensorfold.contracts.arrays import A
from tensorfold.contracts.family import Decoder, Geometry
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.sampling import Draw, Drawn
from tensorfold.contracts.states import Group, StateSpec, TableKey
from tensorfold.contracts.step import Kind
from tensorfold.contracts.weights import Packer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "Backend",
    "BackendSettings",
    "CanCapture",
    "DeviceMemory",
    "KeepsCodes",
    "Saved",
    "Session",
    "StateStore",
    "Suitability",
]


@dataclass(frozen=True, slots=True)
class Suitability:
    """How well a backend suits this machine."""

    score: int
    """Higher runs by default: 0 a reference, 10 a plain CPU, 50 an accelerator."""
    device: str
    """What it would run on, for people (`NVIDIA H200`, `2 CPU threads`)."""


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """What the server asks of a backend. Each value may be declined with a `ConfigError` that names it."""

    device: str | None = None
    """`cpu`, `cuda`, `cuda:1`; None: the best one."""
    dtype: str | None = None
    """`float32`, `bfloat16`, `float16`; None: what suits the device and the checkpoint."""
    threads: int | None = None
    """None: the cores that this process may use."""
    checkpoint_dtype: str | None = None
    """What the checkpoint's weights are stored in, for the choice of a dtype."""
    weights: str | None = None
    """What becomes of matrices that the checkpoint stores as floats: `int8`, `int4`, or `exact` (they stay so, and
    quantized ones are computed with floats); None or `auto`: what suits the backend."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes on the device that holds the states."""

    total: int
    available: int


class Saved(Protocol):
    """A copy of one slot's fixed-size states, made by `StateStore.save`; opaque to the core."""

    @property
    def bytes(self) -> int:
        """Device memory that it holds."""
        ...

    def export(self) -> Mapping[str, NDArray[Any]]:
        """The states by name, on the host."""
        ...


class StateStore(Protocol):
    """The memory of all states of one model: page pools, and a fixed-size part for each slot.

    Which pages hold what is the core's business (`compute.pages`); a store only keeps and copies. Fixed-size states
    of a slot begin as zeros; stateful operations leave rows open in them until `commit`.
    """

    @property
    def bytes(self) -> int:
        """Device memory held."""
        ...

    def commit(self, slot: int, group: Group, start: int, rows: int, length: int) -> None:
        """Of the `rows` open rows that began at `start`, keep the first `length - start`."""
        ...

    def reset(self, slot: int, group: Group) -> None:
        """The slot's fixed-size states become zeros; open rows are dropped."""
        ...

    def save(self, slot: int, group: Group) -> Saved:
        """A copy of the slot's fixed-size states, with no rows open."""
        ...

    def load(self, slot: int, group: Group, saved: Saved) -> None:
        """The slot's fixed-size states become those saved."""
        ...

    def import_saved(self, group: Group, states: Mapping[str, NDArray[Any]]) -> Saved:
        """What `Saved.export` gave, back on the device."""
        ...

    def copy_page(self, table: TableKey, source: int, target: int) -> None:
        """Copy one page of every state of a table."""
        ...

    def export_page(self, table: TableKey, page: int) -> Mapping[str, NDArray[Any]]:
        """One page of every state of a table, on the host."""
        ...

    def import_page(self, table: TableKey, page: int, states: Mapping[str, NDArray[Any]]) -> None:
        """What `export_page` gave, back on the device."""
        ...


class Session(Protocol[A]):
    """A backend opened on one device for one model."""

    @property
    def device(self) -> str:
        """For people."""
        ...

    @property
    def dtype(self) -> str:
        """Of activations."""
        ...

    @property
    def numerics(self) -> str:
        """Names everything that decides bits: backend, version, kernels, dtype. Part of a snapshot's identity."""
        ...

    @property
    def chunk(self) -> int:
        """The step of the chunk plan: prompt tokens in one `chunk` Step, a constant of the device."""
        ...

    @property
    def packer(self) -> Packer[A]: ...

    def memory(self) -> DeviceMemory: ...

    def chunk_equals_rows(self, geometry: Geometry) -> bool:
        """Whether both kinds of operations give the same bits for this model, as the contract test proves."""
        ...

    def page_bytes(self, spec: StateSpec) -> int:
        """Device memory of one page of a paged state, or of one slot of a fixed-size state."""
        ...

    def store(self, states: Mapping[str, StateSpec], pages: Mapping[TableKey, int], slots: int) -> StateStore:
        """Allocate page pools of these sizes and fixed-size states for so many slots."""
        ...

    def ops(self, kind: Kind, store: StateStore, states: Mapping[str, StateSpec]) -> Ops[A]:
        """The operations of one kind over a store."""
        ...

    def array(self, values: NDArray[Any]) -> A:
        """Upload."""
        ...

    def numpy(self, x: A) -> NDArray[np.float32]:
        """Download as float32; waits until it is computed."""
        ...

    def finish(self) -> None:
        """Return when everything asked for is computed, states included."""
        ...

    def sample(self, logits: A, draws: Sequence[Draw]) -> list[Drawn]:
        """One token for each draw, by the keyed rule, equal to `compute.sampling.draw` bit for bit."""
        ...

    def close(self) -> None:
        """Free the device; nothing may be called afterwards."""
        ...


@runtime_checkable
class CanCapture(Protocol):
    """A session that compiles a decoder or records graphs of it; asked once, after the weights are packed."""

    def capture(self, decoder: Decoder[Any]) -> Decoder[Any]:
        """The same decoder, faster."""
        ...


@runtime_checkable
class KeepsCodes(Protocol):
    """A session that may compute with integer codes (`Affine`) as they are stored; any other expands them on load."""

    @property
    def keeps_codes(self) -> bool:
        """Whether it does, with its settings."""
        ...


class Backend(Protocol):
    """One way to compute."""

    @property
    def name(self) -> str:
        """Unique among backends (`torch`)."""
        ...

    def probe(self) -> Suitability:
        """How well it suits this machine; cheap, and imports nothing heavy before it has to.

        Raises:
            PluginUnavailable: it cannot run here, and what would help.
        """
        ...

    def open(self, settings: BackendSettings) -> Session[Any]:
        """A session on one device.

        Raises:
            ConfigError: a setting that this backend or machine cannot give.
        """
        ...

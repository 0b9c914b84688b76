"""The device of the scripted backend: pages of hashes, and the one operation that writes and reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.sampling import draw_rows
from tensorfold.contracts.backend import BackendSettings, DeviceMemory, Saved, Session, Suitability
from tensorfold.contracts.family import Geometry
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.sampling import Draw, Drawn
from tensorfold.contracts.states import PAGE, Group, StateSpec, TableKey
from tensorfold.contracts.step import Kind, Step
from tensorfold.contracts.weights import Packer
from tensorfold.errors import BackendError

__all__ = [
    "START",
    "STATE",
    "TABLE",
    "Hashes",
    "ScriptedBackend",
    "ScriptedOps",
    "ScriptedSession",
    "ScriptedStore",
    "longer",
]

Hashes: TypeAlias = NDArray[np.uint64]
"""`[R]`: this backend's only kind of activation, the hash of each row's tokens up to its own."""

STATE: Final = "path"
"""The name of the one state."""
TABLE: Final = TableKey("main", None)
START: Final = 0x243F6A8885A308D3
"""The hash of no tokens."""
_WORD: Final = 0xFFFFFFFFFFFFFFFF


def longer(before: int, token: int) -> int:
    """The hash of a path that is one token longer: FNV-1a's step with a final mix."""
    word = ((before ^ (token + 1)) * 0x9E3779B97F4A7C15) & _WORD
    return word ^ (word >> 29)


class _Nothing:
    """A copy of no fixed-size states."""

    bytes = 0

    def export(self) -> Mapping[str, NDArray[Any]]:
        """No arrays."""
        return {}


class ScriptedStore:
    """Pages of hashes; no fixed-size states."""

    def __init__(self, pages: Mapping[TableKey, int]) -> None:
        self.pages: dict[TableKey, Hashes] = {key: np.zeros((count, PAGE), np.uint64) for key, count in pages.items()}

    @property
    def bytes(self) -> int:
        """Of all pages."""
        return sum(pages.nbytes for pages in self.pages.values())

    def commit(self, slot: int, group: Group, start: int, rows: int, length: int) -> None:
        """Nothing is left open: what lies behind a length is written again before it is read."""

    def reset(self, slot: int, group: Group) -> None:
        """Nothing to be reset."""

    def save(self, slot: int, group: Group) -> Saved:
        """Nothing but pages is kept."""
        return _Nothing()

    def load(self, slot: int, group: Group, saved: Saved) -> None:
        """Nothing to be loaded."""

    def import_saved(self, group: Group, states: Mapping[str, NDArray[Any]]) -> Saved:
        """Nothing to be imported."""
        return _Nothing()

    def copy_page(self, table: TableKey, source: int, target: int) -> None:
        """A page before it is written by one of its holders."""
        self.pages[table][target] = self.pages[table][source]

    def export_page(self, table: TableKey, page: int) -> Mapping[str, NDArray[Any]]:
        """The hashes of 64 positions."""
        return {STATE: self.pages[table][page].copy()}

    def import_page(self, table: TableKey, page: int, states: Mapping[str, NDArray[Any]]) -> None:
        """The reverse."""
        self.pages[table][page] = states[STATE]


class ScriptedOps:
    """The one operation that the scripted decoder needs, and those that the Runner does."""

    def __init__(self, store: ScriptedStore) -> None:
        self._store = store

    def rows(self, x: Hashes, index: Any) -> Hashes:
        """`x[index]`."""
        picked: Hashes = x[np.asarray(index)]
        return picked

    def concat(self, xs: Sequence[Hashes], axis: int) -> Hashes:
        """End to end."""
        return np.concatenate(xs, axis)

    def paths(self, step: Step[Hashes]) -> Hashes:
        """The hash of each row's tokens up to its own, written to the pages and read from them."""
        out = np.zeros(step.rows, np.uint64)
        pages = self._store.pages[TABLE]
        for number, (segment, (first, _)) in enumerate(zip(step.segments, step.bounds, strict=True)):
            table = step.pages[TABLE][number]
            path = START
            if segment.start:
                before = segment.start - 1
                path = int(pages[table[before // PAGE], before % PAGE])
            for offset, token in enumerate(segment.tokens):
                path = longer(path, token)
                position = segment.start + offset
                pages[table[position // PAGE], position % PAGE] = path
                out[first + offset] = path
        return out


class ScriptedSession:
    """Implements `contracts.backend.Session` without a device."""

    device = "a script"
    dtype = "float32"
    numerics = "scripted"

    def __init__(self, chunk: int = 16, *, equal: bool = True) -> None:
        """`equal`: whether it declares that chunks and rows give the same bits."""
        self.chunk = chunk
        self._equal = equal
        self.closed = False
        """Whether its runner was closed."""

    @property
    def packer(self) -> Packer[Hashes]:
        """There are no weights."""
        raise BackendError("the scripted backend has no weights to pack")

    def memory(self) -> DeviceMemory:
        """As much as anybody asks for."""
        return DeviceMemory(1 << 40, 1 << 40)

    def chunk_equals_rows(self, geometry: Geometry) -> bool:
        """Both kinds do the same, whatever is declared."""
        return self._equal

    def page_bytes(self, spec: StateSpec) -> int:
        """64 hashes."""
        return 8 * PAGE

    def store(self, states: Mapping[str, StateSpec], pages: Mapping[TableKey, int], slots: int) -> ScriptedStore:
        """Pages of hashes."""
        return ScriptedStore(pages)

    def ops(self, kind: Kind, store: Any, states: Mapping[str, StateSpec]) -> Ops[Hashes]:
        """The same for both kinds."""
        return cast("Ops[Hashes]", ScriptedOps(store))

    def array(self, values: NDArray[Any]) -> Any:
        """As it is."""
        return values

    def numpy(self, x: Hashes) -> NDArray[np.float32]:
        """As float32."""
        return np.asarray(x, dtype=np.float32)

    def finish(self) -> None:
        """Nothing runs apart."""

    def sample(self, logits: Any, draws: Sequence[Draw]) -> list[Drawn]:
        """The shared rule."""
        return draw_rows(logits, draws)

    def close(self) -> None:
        """Remember it."""
        self.closed = True


class ScriptedBackend:
    """Implements `contracts.backend.Backend`; never chosen unless asked for."""

    name = "scripted"

    def probe(self) -> Suitability:
        """It suits every machine, and no user."""
        return Suitability(-100, "a script")

    def open(self, settings: BackendSettings) -> Session[Any]:
        """A session without a device."""
        return ScriptedSession()

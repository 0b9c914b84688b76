"""A backend that emits given tokens, and fails, stalls or dawdles on demand. It carries the engine's own tests.

It runs under the real Runner. Its one state is a hash of all tokens up to each position, kept in pages as keys and
values would be: a token that the engine feeds at a wrong place, a page that is shared or given back wrongly, or states
that do not go back all change what is emitted from there on. Off every script, tokens are pseudo-random functions of
everything before them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.pages import pages_of
from tensorfold.compute.runner import Runner
from tensorfold.compute.sampling import draw_rows, gumbel_noise
from tensorfold.contracts.backend import BackendSettings, DeviceMemory, Saved, Session, Suitability
from tensorfold.contracts.family import Decoder, Geometry
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.sampling import Draw, Drawn
from tensorfold.contracts.states import KV, PAGE, Group, StateSpec, TableKey
from tensorfold.contracts.step import Kind, Step
from tensorfold.contracts.weights import Packer
from tensorfold.errors import BackendError

__all__ = [
    "Script",
    "ScriptedBackend",
    "ScriptedDecoder",
    "ScriptedSession",
    "Stall",
    "raises",
    "scripted_geometry",
    "scripted_runner",
    "slow",
]

Hashes: TypeAlias = NDArray[np.uint64]
"""`[R]`: this backend's only kind of activation, the hash of each row's tokens up to its own."""

STATE = "path"
"""The name of the one state."""
TABLE = TableKey("main", None)
MARGIN = 10_000.0
"""By how much a scripted token's logit exceeds all others: neither noise nor bias nor penalty reaches so far."""

_WORD = 0xFFFFFFFFFFFFFFFF
_START = 0x243F6A8885A308D3


@dataclass(frozen=True, slots=True)
class Script:
    """What is emitted after one prompt."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    """Behind it comes the geometry's lowest end token, if it has any."""
    at: Mapping[int, Callable[[], None]] = field(default_factory=dict[int, Callable[[], None]])
    """Called when the row is computed that reply token `index` is drawn from; negative: rows inside the prompt."""
    nan_at: int | None = None
    """The index of the reply token whose logits are not finite."""


def raises(error: BaseException) -> Callable[[], None]:
    """Makes the step fail."""

    def act() -> None:
        raise error

    return act


def slow(seconds: float) -> Callable[[], None]:
    """Makes the step take time."""
    return lambda: time.sleep(seconds)


class Stall:
    """Makes the step block until it is released."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        """A step has come to it."""
        self.release = threading.Event()
        """Set it to let every step go on."""

    def __call__(self) -> None:
        self.entered.set()
        if not self.release.wait(60):
            raise BackendError("a stalled step was never released")


# ---- the model --------------------------------------------------------------------------------------------


def scripted_geometry(*, vocabulary: int, window: int = 4096, stop_ids: frozenset[int] = frozenset()) -> Geometry:
    """A geometry of the one paged state."""
    return Geometry(
        vocabulary=vocabulary,
        hidden=1,
        layers=1,
        window=window,
        states={STATE: KV(heads=1, k_dim=1, v_dim=1)},
        stop_ids=stop_ids,
    )


def _path(before: int, token: int) -> int:
    """The hash of a path that is one token longer: FNV-1a's step with a final mix."""
    word = ((before ^ (token + 1)) * 0x9E3779B97F4A7C15) & _WORD
    return word ^ (word >> 29)


class ScriptedDecoder:
    """A model that is a table: from the hash of all tokens so far to the next one."""

    def __init__(
        self,
        geometry: Geometry,
        scripts: Sequence[Script],
        on_step: Callable[[Step[Any]], None] | None = None,
        *,
        wrong: int | None = None,
    ) -> None:
        """`on_step` is called before every step is computed; it may record, wait or raise.

        `wrong`: there is a draft head, whose every n-th guess is wrong (0: none); None: there is none.
        """
        self.draft: Decoder[Hashes] | None = None if wrong is None else _ScriptedHead(self, wrong)
        self._vocabulary = geometry.vocabulary
        self._on_step = on_step
        self._tokens: dict[int, int] = {}
        self._acts: dict[int, list[Callable[[], None]]] = {}
        self._broken: set[int] = set()
        for script in scripts:
            self.learn(script, min(geometry.stop_ids, default=None))

    def learn(self, script: Script, end: int | None) -> None:
        """Remember one more script; of two with one prompt the first holds."""
        path = _START
        reply = script.reply if end is None else (*script.reply, end)
        for index, token in enumerate((*script.prompt, *reply), start=-len(script.prompt)):
            if index >= 0:
                self._tokens.setdefault(path, token)
            if index == script.nan_at:
                self._broken.add(path)
            if index in script.at:
                self._acts.setdefault(path, []).append(script.at[index])
            path = _path(path, token)

    def prepare(self, step: Step[Hashes]) -> Mapping[str, NDArray[Any]]:
        """Nothing to be uploaded."""
        return {}

    def forward(self, ops: Ops[Hashes], step: Step[Hashes]) -> Hashes:
        """Each row's hash, after what the scripts do at these rows."""
        if self._on_step is not None:
            self._on_step(step)
        hidden = _scripted(ops).paths(step)
        for path in hidden.tolist():
            for act in self._acts.get(path, ()):
                act()
        return hidden

    def logits(self, ops: Ops[Hashes], hidden: Hashes) -> Hashes:
        """`[N, V]` float32."""
        rows = np.zeros((len(hidden), self._vocabulary), dtype=np.float32)
        for place, path in enumerate(hidden.tolist()):
            token = self._tokens.get(path)
            if token is None or path in self._broken:
                rows[place] = self.row(path)
            else:
                rows[place, token] = MARGIN
        return cast("Hashes", rows)

    def row(self, path: int) -> NDArray[np.float32]:
        if path in self._broken:
            return np.full(self._vocabulary, np.nan, dtype=np.float32)
        token = self._tokens.get(path)
        if token is None:
            return gumbel_noise(path, 0, np.arange(self._vocabulary)).astype(np.float32)
        row = np.zeros(self._vocabulary, dtype=np.float32)
        row[token] = MARGIN
        return row


class _ScriptedHead:
    """A draft head that knows the scripts: it has no state, and goes on from the decoder's hash or from its own."""

    draft = None

    def __init__(self, decoder: ScriptedDecoder, wrong: int) -> None:
        self._decoder = decoder
        self._wrong = wrong

    def prepare(self, step: Step[Hashes]) -> Mapping[str, NDArray[Any]]:
        return {}

    def forward(self, ops: Ops[Hashes], step: Step[Hashes]) -> Hashes:
        hidden = step.inputs["hidden"]
        pairs = zip(hidden.tolist(), step.host_ids.tolist(), strict=True)
        return np.asarray([_path(path, token) for path, token in pairs], dtype=np.uint64)

    def logits(self, ops: Ops[Hashes], hidden: Hashes) -> Hashes:
        rows = [
            -self._decoder.row(path) if self._wrong and path % self._wrong == 0 else self._decoder.row(path)
            for path in hidden.tolist()
        ]
        return cast("Hashes", np.stack(rows))


# ---- the device -------------------------------------------------------------------------------------------


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


class _ScriptedOps:
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
            path = _START
            if segment.start:
                before = segment.start - 1
                path = int(pages[table[before // PAGE], before % PAGE])
            for offset, token in enumerate(segment.tokens):
                path = _path(path, token)
                position = segment.start + offset
                pages[table[position // PAGE], position % PAGE] = path
                out[first + offset] = path
        return out


def _scripted(ops: Ops[Hashes]) -> _ScriptedOps:
    if not isinstance(ops, _ScriptedOps):
        raise BackendError("the scripted decoder runs on the scripted backend alone")
    return ops


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
        return cast("Ops[Hashes]", _ScriptedOps(store))

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


def scripted_runner(
    scripts: Sequence[Script],
    geometry: Geometry,
    *,
    lanes: int = 4,
    chunk: int = 16,
    positions: int | None = None,
    on_step: Callable[[Step[Any]], None] | None = None,
    equal: bool = True,
    wrong: int | None = None,
) -> Runner[Any]:
    """A real Runner over the scripted backend; `positions` are shared by all lanes (None: a whole window each)."""
    pages = pages_of(geometry.window) * lanes if positions is None else positions // PAGE
    return Runner(
        ScriptedDecoder(geometry, scripts, on_step, wrong=wrong),
        ScriptedSession(chunk, equal=equal),
        geometry,
        lanes=lanes,
        pages={TABLE: pages},
        identity="scripted",
    )

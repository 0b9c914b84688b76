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
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.pages import pages_of
from tensorfold.compute.runner import Runner
from tensorfold.compute.sampling import gumbel_noise
from tensorfold.contracts.family import Decoder, Geometry
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import KV, PAGE
from tensorfold.contracts.step import Step
from tensorfold.errors import BackendError
from tensorfold.testing.scripted_device import (
    START,
    STATE,
    TABLE,
    Hashes,
    ScriptedBackend,
    ScriptedOps,
    ScriptedSession,
    longer,
)

__all__ = [
    "TABLE",
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

MARGIN = 10_000.0
"""By how much a scripted token's logit exceeds all others: neither noise nor bias nor penalty reaches so far."""


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
        path = START
        reply = script.reply if end is None else (*script.reply, end)
        for index, token in enumerate((*script.prompt, *reply), start=-len(script.prompt)):
            if index >= 0:
                self._tokens.setdefault(path, token)
            if index == script.nan_at:
                self._broken.add(path)
            if index in script.at:
                self._acts.setdefault(path, []).append(script.at[index])
            path = longer(path, token)

    def prepare(self, step: Step[Hashes]) -> Mapping[str, NDArray[Any]]:
        """Nothing to be uploaded."""
        return {}

    def forward(self, ops: Ops[Hashes], step: Step[Hashes]) -> Hashes:
        """Each row's hash, after what the scripts do at these rows."""
        if self._on_step is not None:
            self._on_step(step)
        if not isinstance(ops, ScriptedOps):
            raise BackendError("the scripted decoder runs on the scripted backend alone")
        hidden = ops.paths(step)
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
        return np.asarray([longer(path, token) for path, token in pairs], dtype=np.uint64)

    def logits(self, ops: Ops[Hashes], hidden: Hashes) -> Hashes:
        rows = [
            -self._decoder.row(path) if self._wrong and path % self._wrong == 0 else self._decoder.row(path)
            for path in hidden.tolist()
        ]
        return cast("Hashes", np.stack(rows))


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

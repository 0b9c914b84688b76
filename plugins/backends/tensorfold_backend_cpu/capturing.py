"""A decoder that is asked for its operations once for each number of rows; their calls are played again after that.

That is right because a decoder knows a Step by its inputs and through operations alone: what it looks at on the host, it
looks at in `prepare`. A small model's step of one row was 7 to 9 % faster for it, in turns within one process.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from numpy.typing import NDArray

from tensorfold.contracts.family import Decoder
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step
from tensorfold_backend_cpu.cells import Cell, Cells
from tensorfold_backend_cpu.machine import Machine
from tensorfold_backend_cpu.ops import CpuOps
from tensorfold_backend_cpu.rows import Rows
from tensorfold_backend_cpu.state import CpuStore
from tensorfold_backend_cpu.taping import MOST_ROWS, Tape, record

__all__ = ["CapturedDecoder"]

_TAPES: Final = 128
"""Of one function at most."""
_TRIES: Final = 4
"""Steps in a row that could not be recorded, after which none is tried: the model computes on the host, too."""


@dataclass(frozen=True, slots=True, eq=False)
class _Taped:
    """A tape, and what says of a Step what its calls do not."""

    tape: Tape
    cells: tuple[Cell, ...]


class _Tapes:
    """What is recorded of one function, over one store."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._known: dict[Hashable, _Taped] = {}
        self._store: CpuStore | None = None
        self._generation = -1
        self._failed = 0

    @property
    def worthwhile(self) -> bool:
        """Whether steps can be recorded, as far as is known."""
        return self._failed < _TRIES

    def find(self, store: CpuStore, key: Hashable) -> _Taped | None:
        """What is recorded, unless it is of another store, or refers to blocks that have moved."""
        generation = self._machine.workspace.generation
        if store is not self._store or generation != self._generation or len(self._known) >= _TAPES:
            self._known.clear()
            self._store, self._generation = store, generation
        return self._known.get(key)

    def keep(self, key: Hashable, made: Tape | Rows, cells: tuple[Cell, ...] = ()) -> _Taped | None:
        """None for what is no tape."""
        if isinstance(made, Rows):
            self._failed += 1
            return None
        self._failed = 0
        taped = self._known[key] = _Taped(made, cells)
        return taped


class CapturedDecoder:
    """The same decoder, faster."""

    def __init__(self, decoder: Decoder[Rows], machine: Machine, cells: Cells) -> None:
        self._decoder = decoder
        self._machine = machine
        self._cells = cells
        self._forwards = _Tapes(machine)
        self._logits = _Tapes(machine)
        self._draft = None if decoder.draft is None else CapturedDecoder(decoder.draft, machine, cells)

    @property
    def draft(self) -> Decoder[Rows] | None:
        """The draft head, as fast."""
        return self._draft

    def prepare(self, step: Step[Rows]) -> Mapping[str, NDArray[Any]]:
        """The decoder's own."""
        return self._decoder.prepare(step)

    def forward(self, ops: Ops[Rows], step: Step[Rows]) -> Rows:
        """The decoder's rows."""
        if step.kind != "rows" or step.rows > MOST_ROWS or not self._forwards.worthwhile or not isinstance(ops, CpuOps):
            return self._decoder.forward(ops, step)
        inputs = _inputs(step)
        key = _key(inputs)
        taped = self._forwards.find(ops.store, key)
        if taped is None:
            own = _copy(step)
            made = record(self._machine, _inputs(own), lambda: self._decoder.forward(ops, own))
            states = ops.store.cells_of(own)
            taped = self._forwards.keep(key, made, (*self._cells.of(own), *states))
            if taped is None:
                return cast("Rows", made)
            for each in states:
                each.forget(own)
        for cell in taped.cells:
            cell.refresh(step)
        return taped.tape.play(inputs)

    def logits(self, ops: Ops[Rows], hidden: Rows) -> Rows:
        """The decoder's logits."""
        if hidden.shape[0] > MOST_ROWS or not self._logits.worthwhile or not isinstance(ops, CpuOps):
            return self._decoder.logits(ops, hidden)
        key = _key([hidden])
        taped = self._logits.find(ops.store, key)
        if taped is None:
            own = hidden.again()
            made = record(self._machine, [own], lambda: self._decoder.logits(ops, own))
            taped = self._logits.keep(key, made)
            if taped is None:
                return cast("Rows", made)
        return taped.tape.play([hidden])


def _inputs(step: Step[Rows]) -> list[Rows]:
    """All rows that a Step has of its own."""
    wanted = [] if step.wanted is None else [step.wanted]
    return [step.ids, step.positions, *wanted, *step.inputs.values()]


def _copy(step: Step[Rows]) -> Step[Rows]:
    """A Step over the same rows, which nothing has been made of yet."""
    return replace(
        step,
        ids=step.ids.again(),
        positions=step.positions.again(),
        wanted=None if step.wanted is None else step.wanted.again(),
        inputs={name: rows.again() for name, rows in step.inputs.items()},
        scratch={},
    )


def _key(inputs: Sequence[Rows]) -> Hashable:
    """What decides which calls are made."""
    return tuple((rows.shape, rows.stride, rows.dtype) for rows in inputs)

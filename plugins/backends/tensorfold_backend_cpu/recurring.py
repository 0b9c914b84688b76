"""The composed operations on the host, with products and recurrences by kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.composed import ComposedOps
from tensorfold.compute.primitives import Primitives
from tensorfold.compute.store import ComposedStore
from tensorfold.contracts.handles import Linear
from tensorfold.contracts.states import Recurrent
from tensorfold.contracts.step import Step
from tensorfold_backend_cpu.kernels.recurrent import GatedDelta, StateSpace
from tensorfold_backend_cpu.machine import Machine

__all__ = ["HostOps"]

Array = NDArray[Any]
Recurrence: TypeAlias = GatedDelta | StateSpace


@dataclass(frozen=True, slots=True, eq=False)
class _OpenRun:
    """Rows of one sequence that wait in a recurrence: the state after all of them, or a replay of some."""

    machine: Machine
    call: Recurrence
    """Over all sequences."""
    inputs: tuple[Array, ...]
    """What the call refers to."""
    first: int
    rows: int
    before: Array
    after: Array

    def kept(self, rows: int) -> Array:
        """The state after the first `rows` of them."""
        if rows == self.rows:
            self.machine.run()
            return self.after[None]
        state = np.empty_like(self.before)
        _record(self.machine, self.call, self.inputs, [(self.first, rows, self.before, state)])
        self.machine.run()
        return state[None]


def _record(
    machine: Machine,
    call: Recurrence,
    inputs: tuple[Array, ...],
    runs: Sequence[tuple[int, int, Array, Array]],
) -> None:
    """A call over these sequences: first row, rows, and the states before and after."""
    words = np.asarray(
        [(first, rows, before.ctypes.data, after.ctypes.data) for first, rows, before, after in runs], np.int64
    )
    states = [state for *_, before, after in runs for state in (before, after)]
    machine.call(replace(call, items=len(runs) * call.heads, runs=int(words.ctypes.data)), words, inputs, states)


def _address(values: Array) -> int:
    return int(values.ctypes.data)


class HostOps(ComposedOps[Array]):
    """Composed on numpy, over products that are given."""

    def __init__(
        self,
        machine: Machine,
        primitives: Primitives[Array],
        store: ComposedStore[Array],
        linear: Callable[[Array, Linear], Array],
    ) -> None:
        super().__init__(primitives, store)
        self._machine = machine
        self._linear = linear

    def linear(self, x: Array, weight: Linear, *, wide: bool = False) -> Array:
        return self._linear(x, weight)

    def gated_delta(
        self, step: Step[Array], name: str, q: Array, k: Array, v: Array, g: Array, beta: Array, *, scale: float
    ) -> Array:
        heads, k_width, v_width = self.store.spec(name, Recurrent).shape
        rows, key_heads, _ = q.shape
        fade = np.ascontiguousarray(self.p.exp(_real(g)).reshape(rows, heads, -1))
        inputs = (_real(self._unit(q) * scale), _real(self._unit(k)), _real(v), fade, _real(beta))
        out = np.empty((rows, heads, v_width), np.float32)
        queries, keys, values, _, rates = map(_address, inputs)
        call = GatedDelta(
            items=0,
            runs=0,
            heads=heads,
            shared=heads // key_heads,
            k_width=k_width,
            v_width=v_width,
            fades=fade.shape[-1],
            q=queries,
            k=keys,
            v=values,
            fade=_address(fade),
            beta=rates,
            out=_address(out),
        )
        return self._run(step, name, call, (*inputs, out), out)

    def ssd(self, step: Step[Array], name: str, x: Array, dt: Array, a: Array, b: Array, c: Array, d: Array) -> Array:
        heads, width, states = self.store.spec(name, Recurrent).shape
        rows, groups, _ = b.shape
        wide, steps = _real(x), _real(dt)
        inputs = (_real(self.p.exp(steps * a)), _real(wide * steps[..., None]), _real(b), _real(c))
        out = np.empty((rows, heads, width), np.float32)
        fades, entering, written, read = map(_address, inputs)
        call = StateSpace(
            items=0,
            runs=0,
            heads=heads,
            shared=heads // groups,
            width=width,
            states=states,
            fade=fades,
            entering=entering,
            written=written,
            read=read,
            out=_address(out),
        )
        y: Array = self._run(step, name, call, (*inputs, out), out) + wide * d[:, None]
        return y

    def _run(self, step: Step[Array], name: str, call: Recurrence, kept: tuple[Array, ...], out: Array) -> Array:
        """All sequences of a Step, each from its committed state; what comes out is computed when this returns."""
        slots = np.asarray([each.slot for each in step.segments], np.int64)
        before = self.store.committed(name, slots)
        after = np.empty_like(before)
        runs = [
            (first, last - first, before[number], after[number]) for number, (first, last) in enumerate(step.bounds)
        ]
        _record(self._machine, call, kept, runs)
        self._machine.run()
        for segment, (first, rows, old, new) in zip(step.segments, runs, strict=True):
            self.store.leave_open(segment.slot, name, _OpenRun(self._machine, call, kept, first, rows, old, new))
        return out


def _real(values: Array) -> Array:
    """Floats without gaps."""
    return np.ascontiguousarray(values, np.float32)

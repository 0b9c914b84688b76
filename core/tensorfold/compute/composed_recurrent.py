"""The operations over fixed-size states: short convolutions, recent inputs, gated delta rule, state space duality.

A recurrence goes row by row, over all sequences of the Step at once: the rows with one number in their sequences form
one call. Its kernel is elementwise but for sums over one axis, so a row's bits do not depend on who shares the call,
and a partial commit replays the kept rows to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.composed_attention import AttentionOps
from tensorfold.compute.composed_plans import LookbackPlan, lookback_plan, memo, turn_plan
from tensorfold.compute.composed_pure import handle
from tensorfold.compute.packing import DenseConv
from tensorfold.compute.primitives import Primitives
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Activation, ConvWeight
from tensorfold.contracts.states import Conv, Recent, Recurrent
from tensorfold.contracts.step import Step

__all__ = ["RecurrentOps"]

Kernel: TypeAlias = Callable[[A, Sequence[A]], tuple[A, A]]
"""(states `[n, ...]`, one row of every input `[n, ...]`) to (outputs `[n, ...]`, states after)."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenInputs(Generic[A]):
    """Rows that wait in a convolution or in recent inputs: what is kept is a slice."""

    primitives: Primitives[A]
    source: A
    """All segments' kept inputs and the Step's rows."""
    plan: LookbackPlan
    segment: int

    def kept(self, rows: int) -> A:
        """The last inputs after the first `rows` of them."""
        return self.primitives.take(self.source, self.primitives.array(self.plan.after(self.segment, rows)))


@dataclass(frozen=True, slots=True, eq=False)
class OpenRecurrence(Generic[A]):
    """Rows that wait in a recurrence: the state after all of them, or a replay of some."""

    kernel: Kernel[A]
    before: A
    """`[1, ...]`."""
    after: A
    inputs: Sequence[A]
    """`[rows, ...]` each."""

    def kept(self, rows: int) -> A:
        """The state after the first `rows` of them."""
        if rows == self.inputs[0].shape[0]:
            return self.after
        state = self.before
        for row in range(rows):
            _, state = self.kernel(state, [each[row : row + 1] for each in self.inputs])
        return state


class RecurrentOps(AttentionOps[A]):
    """`short_conv`, `recent`, `gated_delta` and `ssd`."""

    # ---- looking back ----------------------------------------------------------------------------------------

    def short_conv(self, step: Step[A], name: str, x: A, weight: ConvWeight, *, act: Activation | None) -> A:
        spec = self.store.spec(name, Conv)
        packed: DenseConv[A] = handle(weight, DenseConv)
        lookbacks = tuple((spec.taps - 1 - tap) * spec.dilation for tap in range(spec.taps))
        seen = self.p.cast(self._looking_back(step, name, x, spec.keep, lookbacks), "real")
        y = self.p.sum(seen * packed.kernel, 1)
        if packed.bias is not None:
            y = y + packed.bias
        return self.p.cast(y if act is None else self.activate(y, act), "act")

    def recent(self, step: Step[A], name: str, x: A) -> A:
        spec = self.store.spec(name, Recent)
        return self._looking_back(step, name, x, spec.keep, tuple(range(spec.keep, -1, -1)))

    def _looking_back(self, step: Step[A], name: str, x: A, keep: int, lookbacks: tuple[int, ...]) -> A:
        """`[R, C]` to `[R, L, C]`: for each row the inputs so far back in its own sequence, zeros before the start."""
        plan = lookback_plan(step, keep, lookbacks)
        slots = self._slots(step)
        channels = x.shape[-1]
        kept = self.p.reshape(self.store.committed(name, slots), (-1, channels))
        source = self.p.concat([kept, self.p.cast(x, "act")], 0)
        for segment, each in enumerate(step.segments):
            self.store.leave_open(each.slot, name, OpenInputs(self.p, source, plan, segment))
        index = memo(step, ("lookback index", keep, lookbacks), lambda: self.p.array(plan.index))
        return self.p.take(source, index)

    def _slots(self, step: Step[A]) -> A:
        return memo(
            step, ("slots",), lambda: self.p.array(np.asarray([each.slot for each in step.segments], dtype=np.int64))
        )

    # ---- recurrences -----------------------------------------------------------------------------------------

    def gated_delta(self, step: Step[A], name: str, q: A, k: A, v: A, g: A, beta: A, *, scale: float) -> A:
        spec = self.store.spec(name, Recurrent)
        heads, key_width, value_width = spec.shape
        rows, key_heads, _ = q.shape
        shared = heads // key_heads
        # Value heads lie in groups that share a key head: [R, key heads, heads of one, ...].
        grouped = (rows, key_heads, shared)
        queries: A = self._unit(q)[:, :, None] * scale
        keys: A = self._unit(k)[:, :, None]
        values = self.p.reshape(self.p.cast(v, "real"), (*grouped, value_width))
        fading = self.p.reshape(self.p.cast(g, "real"), (*grouped, -1))
        strength = self.p.reshape(self.p.cast(beta, "real"), (*grouped, 1))
        shape = (key_heads, shared, key_width, value_width)
        y = self.delta_scan(step, name, shape, (queries, keys, values, fading, strength))
        return self.p.cast(self.p.reshape(y, (rows, heads, value_width)), "act")

    def delta_scan(self, step: Step[A], name: str, shape: tuple[int, ...], inputs: Sequence[A]) -> A:
        """All rows: queries and keys `[R, hk, 1, dk]`, values `[R, hk, s, dv]`, logs of decays `[R, hk, s, 1 | dk]` and
        strengths `[R, hk, s, 1]`, to `[R, hk, s, dv]`; `shape` is `(hk, s, dk, dv)`."""
        queries, keys, values, fading, strength = inputs
        return self._scan(step, name, shape, self.delta_turn, (queries, keys, values, self.p.exp(fading), strength))

    def delta_turn(self, state: A, inputs: Sequence[A]) -> tuple[A, A]:
        """One row of each sequence: the delta rule."""
        query, key, value, fade, rate = inputs
        faded: A = state * fade[..., None]
        recalled = self.p.sum(faded * key[..., None], -2)
        change: A = (value + recalled * -1.0) * rate
        after: A = faded + key[..., None] * change[:, :, :, None, :]
        return self.p.sum(after * query[..., None], -2), after

    def _unit(self, x: A) -> A:
        """L2-normalized over the last axis, in real."""
        wide = self.p.cast(x, "real")
        return self.p.divide(wide, self.p.sqrt(self.p.sum(wide * wide, -1)[..., None] + 1e-6))

    def ssd(self, step: Step[A], name: str, x: A, dt: A, a: A, b: A, c: A, d: A) -> A:
        spec = self.store.spec(name, Recurrent)
        heads, width, states = spec.shape
        rows, groups, _ = b.shape
        shared = heads // groups
        wide = self.p.cast(x, "real")
        steps = self.p.cast(dt, "real")
        fading = self.p.reshape(steps * a, (rows, groups, shared, 1, 1))
        entering = self.p.reshape(wide * steps[..., None], (rows, groups, shared, width, 1))
        written = self.p.reshape(self.p.cast(b, "real"), (rows, groups, 1, 1, states))
        read = self.p.reshape(self.p.cast(c, "real"), (rows, groups, 1, 1, states))
        y = self.ssd_scan(step, name, (groups, shared, width, states), (fading, entering, written, read))
        passed: A = wide * d[:, None]
        return self.p.cast(self.p.reshape(y, (rows, heads, width)) + passed, "act")

    def ssd_scan(self, step: Step[A], name: str, shape: tuple[int, ...], inputs: Sequence[A]) -> A:
        """All rows: logs of decays `[R, g, s, 1, 1]`, what enters `[R, g, s, p, 1]`, where it is written and what is
        read `[R, g, 1, 1, n]`, to `[R, g, s, p]`; `shape` is `(g, s, p, n)`."""
        fading, entering, written, read = inputs
        return self._scan(step, name, shape, self.ssd_turn, (self.p.exp(fading), entering, written, read))

    def ssd_turn(self, state: A, inputs: Sequence[A]) -> tuple[A, A]:
        """One row of each sequence."""
        fade, entry, into, out = inputs
        after: A = state * fade + entry * into
        return self.p.sum(after * out, -1), after

    def _scan(self, step: Step[A], name: str, shape: tuple[int, ...], kernel: Kernel[A], inputs: Sequence[A]) -> A:
        """Row by row, all sequences together; `shape` is how the kernel sees one state, `inputs` are `[R, ...]`."""
        plan = turn_plan(step)
        committed = self.p.take(
            self.store.committed(name, self._slots(step)), self.p.array(np.asarray(plan.order, dtype=np.int64))
        )
        before = self.p.reshape(committed, (-1, *shape))
        states = before
        after: list[A] = []
        outputs: list[A] = []
        for turn, rows in enumerate(plan.turns):
            output, states = kernel(states, [self._rows_of(each, rows) for each in inputs])
            outputs.append(output)
            going = len(plan.turns[turn + 1]) if turn + 1 < len(plan.turns) else 0
            after[:0] = [states[place : place + 1] for place in range(going, len(rows))]
            states = states[:going]
        for place, segment in enumerate(plan.order):
            first, last = step.bounds[segment]
            rows_open = OpenRecurrence(
                kernel, before[place : place + 1], after[place], [each[first:last] for each in inputs]
            )
            self.store.leave_open(step.segments[segment].slot, name, rows_open)
        return self.p.take(self.p.concat(outputs, 0), self.p.array(plan.back))

    def _rows_of(self, x: A, rows: NDArray[np.int64]) -> A:
        """One row of each sequence that goes on."""
        if len(rows) == 1:
            one: A = x[int(rows[0]) : int(rows[0]) + 1]
            return one
        return self.p.take(x, self.p.array(rows))

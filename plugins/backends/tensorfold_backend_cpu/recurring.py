"""Operations over fixed-size states that kernels compute in place: short convolutions, recurrences, and what gates them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.packing import DenseConv
from tensorfold.compute.primitives import Primitives
from tensorfold.contracts.handles import Activation, ConvWeight
from tensorfold.contracts.states import Conv, Recurrent
from tensorfold.contracts.step import Step
from tensorfold_backend_cpu.cells import Cells
from tensorfold_backend_cpu.hosted import ours
from tensorfold_backend_cpu.kernels.convolution import CHANNELS, ShortConv
from tensorfold_backend_cpu.kernels.norm import RmsNorm
from tensorfold_backend_cpu.kernels.recurrent import RUN_WORDS, GatedDelta, StateSpace
from tensorfold_backend_cpu.kernels.simd import ACTIVATIONS
from tensorfold_backend_cpu.machine import Machine
from tensorfold_backend_cpu.memory import Memory
from tensorfold_backend_cpu.mixing import MixingOps
from tensorfold_backend_cpu.places import Forms, Place
from tensorfold_backend_cpu.rows import Rows
from tensorfold_backend_cpu.slots import SlotCell, Span, lasting
from tensorfold_backend_cpu.state import CpuStore

__all__ = ["RecurringOps"]

Recurrence: TypeAlias = GatedDelta | StateSpace

_EPS = 1e-6
"""Of the length that queries and keys are divided by."""


@dataclass(frozen=True, slots=True, eq=False)
class _ConvReplay:
    """The last inputs after some of the rows."""

    cell: SlotCell
    x: Rows

    def __call__(self, span: Span, into: Memory) -> None:
        keep, channels = self.cell.shape
        new = self.x.values()[span.first : span.first + span.rows]
        seen = np.concatenate([span.before.array(np.float32, keep, channels), new])
        into.array(np.float32, keep, channels)[:] = seen[len(seen) - keep :]


@dataclass(frozen=True, slots=True, eq=False)
class _RecurrenceReplay:
    """The same calls over some of the rows."""

    machine: Machine
    call: Recurrence
    inputs: Sequence[Rows]
    width: int
    """Of a row of the output."""

    def __call__(self, span: Span, into: Memory) -> None:
        words = np.asarray([(span.first, span.rows, span.before.address, into.address)], np.int64)
        pointer = np.asarray([words.reshape(1, RUN_WORDS).ctypes.data], np.int64)
        # What comes out has been used already, and its memory may be somebody else's.
        unused = Rows.new(self.machine, (span.first + span.rows, self.width))
        call = replace(self.call, items=self.call.heads, items_at=0, runs=int(pointer.ctypes.data), out=unused.address)
        self.machine.call(call, words, pointer, span.before, into, *(each.owner for each in self.inputs))
        self.machine.run()


class RecurringOps(MixingOps):
    """`short_conv`, `gated_delta` and `ssd`."""

    def __init__(self, machine: Machine, cells: Cells, primitives: Primitives[NDArray[Any]], store: CpuStore) -> None:
        super().__init__(machine, cells, primitives, store.composed)
        self.store = store
        self._scales: dict[tuple[int, float], NDArray[np.float32]] = {}

    def short_conv(self, step: Step[Rows], name: str, x: Rows, weight: ConvWeight, *, act: Activation | None) -> Rows:
        packed = cast("DenseConv[NDArray[np.float32]]", ours(weight, DenseConv))
        cell, spec = self.store.slot_cell(name, Conv)
        cell.begin(step, -(-spec.channels // CHANNELS))
        source = x.floats()
        if lasting(step):
            source = source.copy(cell.lasting("x", step, spec.channels))
        out = Rows.new(self.machine, x.shape)
        call = ShortConv(
            items=0,
            items_at=cell.items,
            runs=cell.runs,
            channels=spec.channels,
            taps=spec.taps,
            dilation=spec.dilation,
            x=source.address,
            x_stride=source.stride,
            weight=int(packed.kernel.ctypes.data),
            bias=0 if packed.bias is None else int(packed.bias.ctypes.data),
            act=-1 if act is None else ACTIVATIONS.index(act),
            out=out.address,
        )
        self.machine.call(call, source.owner, packed)
        cell.replayed_by(step, _ConvReplay(cell, source))
        return out

    def gated_delta(
        self, step: Step[Rows], name: str, q: Rows, k: Rows, v: Rows, g: Rows, beta: Rows, *, scale: float
    ) -> Rows:
        cell, spec = self.store.slot_cell(name, Recurrent)
        heads, k_width, v_width = spec.shape
        rows, key_heads, _ = q.shape
        cell.begin(step, heads)
        queries = self._unit(q, cell.lasting("q", step, key_heads, k_width), scale)
        keys = self._unit(k, cell.lasting("k", step, key_heads, k_width), 1.0)
        values, rates = self._lasting(cell, step, "v", v.floats()), self._lasting(cell, step, "beta", beta.floats())
        fades = self.apply("exp", g.floats(), out=cell.lasting("fade", step, *g.shape[1:]))
        out = Rows.new(self.machine, (rows, heads, v_width))
        call = GatedDelta(
            items=0,
            items_at=cell.items,
            runs=cell.runs,
            heads=heads,
            shared=heads // key_heads,
            k_width=k_width,
            v_width=v_width,
            fades=g.count // (rows * heads),
            q=queries.address,
            k=keys.address,
            v=values.address,
            fade=fades.address,
            beta=rates.address,
            out=out.address,
        )
        self._recur(step, cell, call, (queries, keys, values, fades, rates), heads * v_width)
        return out

    def ssd(self, step: Step[Rows], name: str, x: Rows, dt: Rows, a: Rows, b: Rows, c: Rows, d: Rows) -> Rows:
        cell, spec = self.store.slot_cell(name, Recurrent)
        heads, width, states = spec.shape
        rows, groups, _ = b.shape
        cell.begin(step, heads)
        wide, steps = x.floats(), dt.floats()
        fades = self.apply("exp", steps * a, out=cell.lasting("fade", step, heads))
        entering = cell.lasting("x", step, heads, width)
        wide.combine(self.reshape(steps, rows, heads, 1), product=True, out=entering)
        written, read = self._lasting(cell, step, "b", b.floats()), self._lasting(cell, step, "c", c.floats())
        out = Rows.new(self.machine, (rows, heads, width))
        call = StateSpace(
            items=0,
            items_at=cell.items,
            runs=cell.runs,
            heads=heads,
            shared=heads // groups,
            width=width,
            states=states,
            fade=fades.address,
            entering=entering.address,
            written=written.address,
            read=read.address,
            out=out.address,
        )
        self._recur(step, cell, call, (fades, entering, written, read), heads * width)
        passed: Rows = wide * self.reshape(d, heads, 1)
        return out + passed

    def _recur(self, step: Step[Rows], cell: SlotCell, call: Recurrence, inputs: Sequence[Rows], width: int) -> None:
        self.machine.call(call, *(each.owner for each in inputs))
        cell.replayed_by(step, _RecurrenceReplay(self.machine, call, inputs, width))

    def _lasting(self, cell: SlotCell, step: Step[Rows], name: str, x: Rows) -> Rows:
        """The same without gaps, and where it stays until the next Step comes."""
        return x.copy(cell.lasting(name, step, *x.shape[1:])) if lasting(step) else x.packed()

    def _unit(self, x: Rows, out: Rows, scale: float) -> Rows:
        """Each head's vector over its length, times a number: its norm by the mean, times that over sqrt(width)."""
        width = x.shape[-1]
        flat = self.reshape(x.packed(), -1, width)
        factor = self._scales.get((width, scale))
        if factor is None:
            factor = self._scales[width, scale] = np.full(width, scale / math.sqrt(width), np.float32)
        call = RmsNorm(
            items=flat.shape[0],
            x=flat.address,
            x_stride=flat.stride,
            columns=width,
            weight=int(factor.ctypes.data),
            weights=1,
            eps=_EPS / width,
            **Forms(Place(out.address, 4 * width)).words(),
        )
        self.machine.call(call, flat.owner, out.owner, factor)
        return out

"""A whole residual layer as one list of calls: nothing is written to memory and read again that need not be.

It computes the same bits as its parts, operation by operation; what is saved is Python, passes over memory, and waiting
for each other.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from tensorfold.compute.layers import Attention, GatedMlp, ResidualLayer, RmsNorm
from tensorfold.contracts.handles import Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step
from tensorfold_backend_cpu.attending import Attending
from tensorfold_backend_cpu.cells import RopeCell
from tensorfold_backend_cpu.handles import CpuLinear
from tensorfold_backend_cpu.kernels.calls import Call
from tensorfold_backend_cpu.kernels.elementwise import Glu
from tensorfold_backend_cpu.kernels.norm import RmsNorm as NormCall
from tensorfold_backend_cpu.kernels.positions import PreparedAttention
from tensorfold_backend_cpu.kernels.simd import ACTIVATIONS
from tensorfold_backend_cpu.machine import Lines, Machine
from tensorfold_backend_cpu.ops import CpuOps
from tensorfold_backend_cpu.places import Forms, Place, Target
from tensorfold_backend_cpu.products import needs_floats, products, steps_of
from tensorfold_backend_cpu.rows import Rows, blocks, place

__all__ = ["FusedLayer", "fused_layer"]

_PREPARED = 64
"""Lists of calls that a layer keeps: one for each number of rows and place in memory that occurs."""


@dataclass(frozen=True, eq=False)
class _Groups:
    """A layer's matrices as this backend packs them."""

    qkv: CpuLinear
    out: CpuLinear
    gate_up: CpuLinear
    down: CpuLinear

    @staticmethod
    def of(qkv: Linear, out: Linear, gate_up: Linear, down: Linear) -> _Groups | None:
        """None when a group wants its input in two forms of integers."""
        fitting = [
            each for each in (qkv, out, gate_up, down) if isinstance(each, CpuLinear) and len(steps_of(each)) <= 1
        ]
        return _Groups(*fitting) if len(fitting) == 4 else None

    @cached_property
    def shape(self) -> Hashable:
        """What decides where intermediate rows go."""
        groups = (self.qkv, self.out, self.gate_up, self.down)
        return tuple((each.columns, each.outputs, needs_floats(each), steps_of(each)) for each in groups)


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """Where a layer's intermediate rows go."""

    first: Forms
    qkv: Place
    read: Forms
    middle: Place
    second: Forms
    gate_up: Place
    gated: Forms


class FusedLayer:
    """Attention and a gated feed-forward block, each behind its norm and added to what came in."""

    def __init__(
        self,
        machine: Machine,
        layer: ResidualLayer[Rows],
        mixer: Attention[Rows],
        mlp: GatedMlp[Rows],
        groups: _Groups,
    ) -> None:
        self._machine = machine
        self._layer = layer
        self._mixer = mixer
        self._mlp = mlp
        self._groups = groups
        self._prepared: dict[tuple[int, int, int, int], Lines] = {}
        self._attending: Attending | None = None
        self._rope: RopeCell | None = None

    def __call__(self, ops: Ops[Rows], step: Step[Rows], x: Rows) -> Rows:
        """`[R, H]` to `[R, H]`."""
        if not isinstance(ops, CpuOps):
            return self._layer(ops, step, x)
        attending = self._on(ops)
        attending.cell.refresh(step)
        if self._rope is not None:
            self._rope.refresh(step)
        x = x.packed()
        out = Rows.new(self._machine, x.shape)
        key = (x.shape[0], x.address, out.address, self._machine.workspace.generation)
        lines = self._prepared.get(key)
        if lines is None:
            if len(self._prepared) >= _PREPARED:
                self._prepared.clear()
            lines = self._lines(x, out, attending)
            # Blocks may have moved just now, which calls that are prepared from here on know.
            key = (x.shape[0], x.address, out.address, self._machine.workspace.generation)
            self._prepared[key] = lines
        self._machine.calls(lines, x.owner)
        return out

    def _on(self, ops: CpuOps) -> Attending:
        """Bind to a store, at the first call."""
        pool = ops.store.pool(self._mixer.state)
        if self._attending is None or self._attending.pool is not pool:
            self._prepared.clear()
            self._attending = Attending.over(pool, self._mixer.heads, ops.cells)
            self._rope = None if self._mixer.rope is None else ops.cells.rope(self._mixer.rope)
        return self._attending

    # ---- the calls -------------------------------------------------------------------------------------------

    def _lines(self, x: Rows, out: Rows, attending: Attending) -> Lines:
        work = self._scratch(x.shape[0])
        rows = x.shape[0]
        calls = [
            self._norm(self._layer.mixer_norm, place(x), rows, work.first),
            *self._product(self._groups.qkv, rows, work.first, work.qkv, None),
            self._prepare(work.qkv, rows, attending),
            attending.read(work.qkv, self._mixer.scale, self._mixer.softcap),
            attending.join(rows, 0, work.read),
            *self._product(self._groups.out, rows, work.read, work.middle, place(x)),
            self._norm(self._layer.mlp_norm, work.middle, rows, work.second),
            *self._product(self._groups.gate_up, rows, work.second, work.gate_up, None),
            self._glu(work.gate_up, rows, work.gated),
            *self._product(self._groups.down, rows, work.gated, place(out), work.middle),
        ]
        return Lines.of(calls, work)

    def _scratch(self, rows: int) -> _Work:
        """Blocks for so many rows, which layers of one shape share."""
        known = self._machine.workspace.prepared
        key = ("layer", rows, self._groups.shape)
        found: _Work | None = known.get(key)
        if found is None:
            found = self._new_scratch(rows)
            known[key] = found
        return found

    def _new_scratch(self, rows: int) -> _Work:
        """Blocks for so many rows, asked for until none of them has moved."""
        groups = self._groups
        while True:
            generation = self._machine.workspace.generation
            work = _Work(
                first=self._forms("normed", rows, groups.qkv),
                qkv=self._floats("qkv", rows, groups.qkv.outputs),
                read=self._forms("read", rows, groups.out),
                middle=self._floats("middle", rows, groups.out.outputs),
                second=self._forms("normed", rows, groups.gate_up),
                gate_up=self._floats("gate_up", rows, groups.gate_up.outputs),
                gated=self._forms("gated", rows, groups.down),
            )
            if generation == self._machine.workspace.generation:
                return work

    def _floats(self, name: str, rows: int, columns: int) -> Place:
        return Place(self._machine.workspace.address(name, 4 * rows * columns), 4 * columns)

    def _forms(self, name: str, rows: int, group: CpuLinear) -> Forms:
        """The input of a group, in the forms that its parts want."""
        columns = group.columns
        floats = self._floats(f"{name} floats", rows, columns) if needs_floats(group) else None
        integers = None
        for step in steps_of(group):
            size = Target.size(rows, columns, step)
            integers = Target(self._machine.workspace.address(name, size), rows, columns, step)
        return Forms(floats, integers)

    def _product(self, group: CpuLinear, rows: int, x: Forms, out: Place, residual: Place | None) -> list[Call]:
        return products(
            group, rows, x.floats, lambda step: cast("Target", x.integers), out, residual, self._machine.team.threads
        )

    def _norm(self, norm: RmsNorm[Rows], x: Place, rows: int, out: Forms) -> Call:
        return NormCall(
            items=rows,
            x=x.address,
            x_stride=x.stride,
            columns=norm.weight.count,
            weight=norm.weight.address,
            weights=1,
            eps=float(norm.eps),
            **out.words(),
        )

    def _prepare(self, x: Place, rows: int, attending: Attending) -> Call:
        """Queries and keys normalized and turned, keys and values put into pages."""
        mixer, rope = self._mixer, self._rope
        norms = [each for each in (mixer.q_norm, mixer.k_norm) if each is not None]
        return PreparedAttention(
            items=rows,
            **attending.pool.words(),
            pages=attending.cell.pages,
            x=x.address,
            x_stride=x.stride,
            heads=mixer.heads,
            q_norm=0 if mixer.q_norm is None else mixer.q_norm.weight.address,
            k_norm=0 if mixer.k_norm is None else mixer.k_norm.weight.address,
            eps=float(norms[0].eps) if norms else 0.0,
            tables=0 if rope is None else rope.tables,
            places=0 if rope is None else rope.places,
            pairs=0 if rope is None else len(rope.rope.inv_freq),
            interleaved=0 if rope is None else int(rope.rope.interleaved),
        )

    def _glu(self, x: Place, rows: int, out: Forms) -> Call:
        mlp = self._mlp
        columns = mlp.down.columns
        padded = columns if out.integers is None else out.integers.padded
        return Glu(
            items=rows * blocks(padded),
            x=x.address,
            x_stride=x.stride,
            columns=columns,
            act=ACTIVATIONS.index(mlp.act),
            limited=int(mlp.limit is not None),
            limit=float(mlp.limit or 0.0),
            **out.words(),
        )


def fused_layer(machine: Machine, block: object) -> FusedLayer | None:
    """The same layer as one list of calls; None for what is not such a layer."""
    if not isinstance(block, ResidualLayer):
        return None
    layer = cast("ResidualLayer[Rows]", block)
    mixer, mlp = layer.mixer, layer.mlp
    if not isinstance(mixer, Attention) or not isinstance(mlp, GatedMlp):
        return None
    groups = _Groups.of(mixer.qkv, mixer.out, mlp.gate_up, mlp.down)
    if groups is None:
        return None
    if mixer.q_norm is not None and mixer.k_norm is not None and mixer.q_norm.eps != mixer.k_norm.eps:
        return None
    return FusedLayer(machine, layer, mixer, mlp, groups)

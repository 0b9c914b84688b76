"""Operations without a state that have kernels, recorded to run together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.primitives import Primitives
from tensorfold.compute.store import ComposedStore
from tensorfold.contracts.handles import Activation, Embedding, Linear, Rope
from tensorfold.contracts.step import Step
from tensorfold_backend_cpu.cells import Cells
from tensorfold_backend_cpu.handles import CpuEmbedding, CpuLinear
from tensorfold_backend_cpu.hosted import HostedOps, ours
from tensorfold_backend_cpu.kernels.arithmetic import FUNCTIONS, Apply, Mix
from tensorfold_backend_cpu.kernels.elementwise import RUN, Activate, Gather, Glu
from tensorfold_backend_cpu.kernels.embedding import EmbedAffine, EmbedFloats
from tensorfold_backend_cpu.kernels.norm import GatedNorm, RmsNorm
from tensorfold_backend_cpu.kernels.positions import Rotate
from tensorfold_backend_cpu.kernels.simd import ACTIVATIONS
from tensorfold_backend_cpu.machine import Machine
from tensorfold_backend_cpu.panels import AffinePanels
from tensorfold_backend_cpu.places import Forms, Place
from tensorfold_backend_cpu.products import needs_floats, products
from tensorfold_backend_cpu.rows import Rows, blocks, place

__all__ = ["PureOps"]


class PureOps(HostedOps):
    """Shape, projections, norms, elementwise, positions."""

    def __init__(
        self,
        machine: Machine,
        cells: Cells,
        primitives: Primitives[NDArray[Any]],
        store: ComposedStore[NDArray[Any]],
    ) -> None:
        super().__init__(machine, primitives, store)
        self.cells = cells

    # ---- shape -----------------------------------------------------------------------------------------------

    def reshape(self, x: Rows, *shape: int) -> Rows:
        known = math.prod(size for size in shape if size >= 0)
        sizes = tuple(x.count // known if size < 0 else size for size in shape)
        # Rows with gaps between them stay as they are when only what is inside a row changes.
        if x.whole:
            return x.view(sizes)
        if len(x.shape) > 1 and sizes[:1] == x.shape[:1]:
            return x.view(sizes, 0, x.stride)
        return x.packed().view(sizes)

    def split(self, x: Rows, sizes: Sequence[int]) -> tuple[Rows, ...]:
        wide = x.shape[-1] * x.dtype.itemsize
        if len(x.shape) == 2:
            lined, stride = x, x.stride
        elif x.dtype == np.float32 and len(x.shape) > 2:
            lined, stride = x.packed(), wide
        else:
            return cast("tuple[Rows, ...]", self.host("split", x, tuple(sizes)))
        parts: list[Rows] = []
        offset = 0
        for size in sizes:
            part = lined.view((x.count // x.shape[-1], size), offset * x.dtype.itemsize, stride)
            parts.append(part if len(x.shape) == 2 else part.copy().view((*x.shape[:-1], size)))
            offset += size
        return tuple(parts)

    def concat(self, xs: Sequence[Rows], axis: int = -1) -> Rows:
        shape, last = xs[0].shape, len(xs[0].shape) - 1
        if axis not in (-1, last) or last == 0 or any(each.dtype != np.float32 for each in xs):
            return super().concat(xs, axis)
        columns = sum(each.shape[-1] for each in xs)
        out = Rows.new(self.machine, (*shape[:-1], columns))
        offset = 0
        for each in xs:
            lined = self.reshape(each, -1, each.shape[-1])
            lined.copy(out.view(lined.shape, 4 * offset, 4 * columns))
            offset += each.shape[-1]
        return out

    def rows(self, x: Rows, index: Rows) -> Rows:
        if len(index.shape) == 1 and index.dtype == np.int32 and x.dtype == np.float32:
            out = Rows.new(self.machine, (*index.shape, *x.shape[1:]))
            self.machine.call(
                Gather(
                    items=index.shape[0],
                    x=x.address,
                    x_stride=x.stride,
                    index=index.address,
                    columns=math.prod(x.shape[1:]),
                    out=out.address,
                    out_stride=out.stride,
                ),
                x.owner,
                index.owner,
            )
            return out
        return cast("Rows", self.host("rows", x, index))

    # ---- projections -----------------------------------------------------------------------------------------

    def embed(self, ids: Rows, weight: Embedding) -> Rows:
        table = ours(weight, CpuEmbedding)
        numbers = ids if ids.dtype == np.int32 and ids.whole else Rows.of(self.machine, ids.values().astype(np.int32))
        hidden = table.shape[1]
        out = Rows.new(self.machine, (*ids.shape, hidden))
        for part in table.parts:
            shared = {
                "items": numbers.count,
                "ids": numbers.address,
                "first": part.first,
                "rows": part.panels.rows,
                "columns": hidden,
                "out": out.address,
                "out_stride": 4 * hidden,
            }
            match part.panels:
                case AffinePanels() as panels:
                    call = EmbedAffine(
                        **shared,
                        bits=panels.layout.bits,
                        codes=int(panels.codes.ctypes.data),
                        codes_stride=panels.codes.strides[0],
                        scales=int(panels.scales.ctypes.data),
                        biases=0 if panels.biases is None else int(panels.biases.ctypes.data),
                        scales_stride=panels.scales.strides[0],
                        wide=int(panels.layout.wide),
                        group=panels.group,
                        centre=panels.centre,
                    )
                    self.machine.call(call, numbers.owner)
                case panels:
                    self.machine.call(
                        EmbedFloats(
                            **shared,
                            kind=panels.kind,
                            weight=int(panels.weight.ctypes.data),
                            weight_stride=panels.weight.strides[0],
                        ),
                        numbers.owner,
                    )
        return out

    def linear(self, x: Rows, weight: Linear, *, wide: bool = False) -> Rows:
        group = ours(weight, CpuLinear)
        if x.dtype != np.float32:
            x = x.packed()
        out = Rows.new(self.machine, (x.shape[0], group.outputs))
        floats = place(x) if needs_floats(group) else None
        threads = self.machine.team.threads
        for call in products(group, x.shape[0], floats, x.integers, place(out), None, threads):
            self.machine.call(call, *x.forms)
        return out

    # ---- norms -----------------------------------------------------------------------------------------------

    def rms_norm(self, x: Rows, weight: Rows | None, eps: float) -> Rows:
        columns = x.shape[-1]
        flat = x if len(x.shape) == 2 and x.dtype == np.float32 else self.reshape(x.packed(), -1, columns)
        out = Rows.new(self.machine, x.shape)
        self.machine.call(
            RmsNorm(
                items=flat.shape[0],
                x=flat.address,
                x_stride=flat.stride,
                columns=columns,
                weight=0 if weight is None else weight.address,
                weights=1 if weight is None else weight.count // columns,
                eps=float(eps),
                **Forms(Place(out.address, 4 * columns)).words(),
            ),
            flat.owner,
            None if weight is None else weight.owner,
        )
        return out

    def gated_rms_norm(
        self, x: Rows, gate: Rows, weight: Rows, eps: float, *, gate_first: bool, act: Activation
    ) -> Rows:
        columns = x.shape[-1]
        normed, opening = x.floats(), gate.floats()
        rows = x.shape[0]
        # What is between rows does not matter as long as a row's groups follow each other.
        groups = x.count // (rows * columns)
        out = Rows.new(self.machine, x.shape)
        self.machine.call(
            GatedNorm(
                items=rows * groups,
                x=normed.address,
                x_stride=normed.stride,
                gate=opening.address,
                gate_stride=opening.stride,
                groups=groups,
                columns=columns,
                weight=weight.address,
                weights=weight.count // columns,
                eps=float(eps),
                act=ACTIVATIONS.index(act),
                gate_first=int(gate_first),
                out=out.address,
            ),
            normed.owner,
            opening.owner,
            weight.owner,
        )
        return out

    # ---- elementwise -----------------------------------------------------------------------------------------

    def apply(self, function: str, x: Rows, parameter: float = 0.0, *, out: Rows | None = None) -> Rows:
        """A function of every element, by its name in `FUNCTIONS`."""
        flat = x.packed()
        made = Rows.new(self.machine, x.shape) if out is None else out
        call = Apply(
            items=-(-x.count // RUN),
            x=flat.address,
            count=x.count,
            function=FUNCTIONS.index(function),
            parameter=float(parameter),
            out=made.address,
        )
        self.machine.call(call, flat.owner, made.owner)
        return made

    def softplus(self, x: Rows) -> Rows:
        return self.apply("softplus", x)

    def tanh(self, x: Rows) -> Rows:
        return self.apply("tanh", x)

    def exp(self, x: Rows) -> Rows:
        return self.apply("exp", x)

    def maximum(self, x: Rows, bound: float) -> Rows:
        return self.apply("maximum", x, bound)

    def softcap(self, x: Rows, cap: float) -> Rows:
        return self.apply("softcap", x, cap)

    def activate(self, x: Rows, act: Activation) -> Rows:
        flat = x.packed()
        out = Rows.new(self.machine, x.shape)
        self.machine.call(
            Activate(
                items=-(-x.count // RUN),
                x=flat.address,
                count=x.count,
                act=ACTIVATIONS.index(act),
                out=out.address,
            ),
            flat.owner,
        )
        return out

    def sigmoid(self, x: Rows) -> Rows:
        return self.activate(x, "sigmoid")

    def glu(self, gate_up: Rows, act: Activation, limit: float | None = None) -> Rows:
        x = gate_up if len(gate_up.shape) == 2 and gate_up.dtype == np.float32 else gate_up.packed()
        width = x.shape[-1] // 2
        flat = x if len(x.shape) == 2 else self.reshape(x, -1, 2 * width)
        out = Rows.new(self.machine, (*x.shape[:-1], width))
        self.machine.call(
            Glu(
                items=flat.shape[0] * blocks(width),
                x=flat.address,
                x_stride=flat.stride,
                columns=width,
                act=ACTIVATIONS.index(act),
                limited=int(limit is not None),
                limit=float(limit or 0.0),
                **Forms(Place(out.address, 4 * width)).words(),
            ),
            flat.owner,
        )
        return out

    # ---- reductions ------------------------------------------------------------------------------------------

    def mix(self, weights: Rows, x: Rows) -> Rows:
        """The kernel takes an axis of sums, which weights of two axes do not have."""
        rows, parts, *sums = weights.shape
        shares, mixed = weights.packed(), x.packed()
        columns = x.shape[-1]
        out = Rows.new(self.machine, (rows, *sums, columns))
        call = Mix(
            items=rows * math.prod(sums),
            x=mixed.address,
            weights=shares.address,
            parts=parts,
            sums=math.prod(sums),
            columns=columns,
            out=out.address,
        )
        self.machine.call(call, mixed.owner, shares.owner)
        return out

    # ---- position --------------------------------------------------------------------------------------------

    def rope(self, step: Step[Rows], x: Rows, rope: Rope, *, shift: int = 0) -> Rows:
        cell = self.cells.rope(rope, shift)
        cell.refresh(step)
        rows, heads, width = x.shape
        source = x if x.dtype == np.float32 else x.packed()
        out = Rows.new(self.machine, x.shape)
        self.machine.call(
            Rotate(
                items=rows,
                x=source.address,
                x_stride=source.stride,
                heads=heads,
                width=width,
                tables=cell.tables,
                places=cell.places,
                pairs=len(rope.inv_freq),
                interleaved=int(rope.interleaved),
                out=out.address,
                out_stride=out.stride,
            ),
            source.owner,
        )
        return out

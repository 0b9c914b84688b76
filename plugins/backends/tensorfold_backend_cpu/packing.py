"""Stored weights to handles.

Quantized matrices keep their codes; what a checkpoint stores as floats stays so or is quantized here, as asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.packing import ComposedPacker
from tensorfold.compute.primitives import Primitives
from tensorfold.contracts.handles import Activation, ConvWeight, Embedding, Experts, LatentUp
from tensorfold.contracts.tensors import Affine, Dense, Tensor
from tensorfold.errors import BackendError
from tensorfold_backend_cpu.blocks import fused_layer
from tensorfold_backend_cpu.handles import CpuEmbedding, CpuLinear, Part, padded_bias
from tensorfold_backend_cpu.kernels.warming import compile_mixtures
from tensorfold_backend_cpu.machine import Machine
from tensorfold_backend_cpu.mixing import CpuExperts
from tensorfold_backend_cpu.panels import AffineSource, Panels, Source, affine_source, alike, float_source, panels_of
from tensorfold_backend_cpu.quantizing import GROUP, Quantizer
from tensorfold_backend_cpu.rows import Rows

__all__ = ["CpuPacker", "WeightsMode"]

WeightsMode: TypeAlias = Literal["auto", "int8", "int4", "exact"]
"""What becomes of matrices: `exact` computes with floats throughout; `int8` and `int4` quantize those that are stored as
floats, and `auto` is `int8`."""

B = TypeVar("B")


class CpuPacker:
    """Packs matrices into panels. What only composed operations use lies as those want it."""

    def __init__(self, machine: Machine, primitives: Primitives[NDArray[Any]], mode: WeightsMode) -> None:
        self._machine = machine
        self._composed = ComposedPacker(primitives)
        self._mode: WeightsMode = mode
        self.products = 0
        """Multiplications that a row costs in the largest matrices packed so far, all together."""

    def linear(self, parts: Sequence[Tensor], biases: Sequence[Tensor | None]) -> CpuLinear:
        """Panels; neighbours that are stored alike are joined."""
        sizes = tuple(part.shape[0] for part in parts)
        packed = CpuLinear(sizes, parts[0].shape[1], self._parts(parts, biases))
        self.products += packed.outputs * packed.columns
        return packed

    def embedding(self, parts: Sequence[Tensor]) -> CpuEmbedding:
        """Panels, so that a tied head is the same memory."""
        shape = (sum(part.shape[0] for part in parts), parts[0].shape[1])
        return CpuEmbedding(shape, self._parts(parts, [None] * len(parts)))

    def tied(self, embedding: Embedding) -> CpuLinear:
        """The table's panels as a matrix."""
        if not isinstance(embedding, CpuEmbedding):
            raise BackendError("a tied head was asked of an embedding that another backend packed")
        self.products += embedding.shape[0] * embedding.shape[1]
        return CpuLinear((embedding.shape[0],), embedding.shape[1], embedding.parts)

    def vector(self, values: NDArray[np.float32]) -> Rows:
        """As it is."""
        return Rows.of(self._machine, np.array(values, np.float32, order="C"))

    def conv(self, kernel: NDArray[np.float32], bias: NDArray[np.float32] | None) -> ConvWeight:
        """For the composed operation."""
        return self._composed.conv(kernel, bias)

    def experts(
        self,
        up: Sequence[Sequence[Tensor]],
        down: Sequence[Tensor],
        *,
        act: Activation,
        gated: bool,
        limit: float | None,
    ) -> Experts:
        """Two matrices an expert, in panels."""
        compile_mixtures()
        before = self.products
        ups = tuple(self.linear(parts, [None] * len(parts)) for parts in up)
        downs = tuple(self.linear([each], [None]) for each in down)
        # A row goes through few of them.
        self.products = before
        return CpuExperts(ups, downs, act=act, gated=gated, limit=limit)

    def latent_up(self, weight: Tensor, heads: int, nope: int, v: int) -> LatentUp:
        """For the composed operation."""
        return self._composed.latent_up(weight, heads, nope, v)

    def block(self, block: B) -> B:
        """A residual layer of attention and a gated feed-forward block becomes one list of calls."""
        fused = fused_layer(self._machine, block)
        return block if fused is None else cast("B", fused)

    # ---- inside ----------------------------------------------------------------------------------------------

    def _parts(self, tensors: Sequence[Tensor], biases: Sequence[Tensor | None]) -> tuple[Part, ...]:
        widths = {tensor.shape[1] for tensor in tensors}
        if len(widths) != 1:
            raise BackendError(f"matrices of {sorted(widths)} columns cannot be fused: they must have one width")
        runs: list[list[tuple[Source, Tensor | None]]] = []
        for tensor, bias in zip(tensors, biases, strict=True):
            source = self._source(tensor)
            if runs and alike(runs[-1][-1][0], source):
                runs[-1].append((source, bias))
            else:
                runs.append([(source, bias)])
        parts: list[Part] = []
        first = 0
        for run in runs:
            panels = panels_of([source for source, _ in run], tensors[0].shape[1])
            panels.compile()
            parts.append(Part(panels, first, _bias(run, panels)))
            first += panels.rows
        return tuple(parts)

    def _source(self, tensor: Tensor) -> Source:
        match tensor:
            case Affine() if self._mode != "exact":
                return affine_source(tensor)
            case Dense() if self._mode != "exact":
                made = Quantizer.of(tensor, 4 if self._mode == "int4" else 8)
                return AffineSource.of(made.bits, GROUP, made.scales, made.biases, made.codes)
            case _:
                return float_source(tensor)


def _bias(run: Sequence[tuple[Source, Tensor | None]], panels: Panels) -> NDArray[np.float32] | None:
    """Of all rows of a run; zeros for those that have none when others have one."""
    if all(bias is None for _, bias in run):
        return None
    whole = [np.zeros(source.rows, np.float32) if bias is None else bias.f32() for source, bias in run]
    return padded_bias(np.concatenate(whole), panels)

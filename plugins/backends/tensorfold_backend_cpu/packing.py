"""Stored weights to handles.

Quantized matrices keep their codes; what a checkpoint stores as floats stays so or is quantized here, as asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.packing import ComposedPacker, DenseExperts
from tensorfold.compute.primitives import Primitives
from tensorfold.contracts.handles import Activation, ConvWeight, Embedding, Experts, LatentUp
from tensorfold.contracts.tensors import Affine, Dense, Tensor
from tensorfold.errors import BackendError
from tensorfold_backend_cpu.blocks import fused_layer
from tensorfold_backend_cpu.handles import CpuEmbedding, CpuLinear, Part, padded_bias
from tensorfold_backend_cpu.machine import Machine
from tensorfold_backend_cpu.panels import Panels, affine_panels, float_panels, joined
from tensorfold_backend_cpu.quantizing import quantized
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
        """Two matrices an expert, in panels, for the composed operation over this backend's products."""
        before = self.products
        ups = tuple(self.linear(parts, [None] * len(parts)) for parts in up)
        downs = tuple(self.linear([each], [None]) for each in down)
        # A row goes through few of them.
        self.products = before
        dense = cast("type[Any]", DenseExperts)
        made: Experts = dense(count=len(down), up=ups, down=downs, act=act, gated=gated, limit=limit)
        return made

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
        parts: list[Part] = []
        first = 0
        for tensor, bias in zip(tensors, biases, strict=True):
            panels = self._panels(tensor)
            part = Part(panels, first, None if bias is None else padded_bias(bias.f32(), panels))
            first += panels.rows
            both = _joined(parts[-1], part) if parts else None
            if both is None:
                parts.append(part)
            else:
                parts[-1] = both
        for part in parts:
            part.panels.compile()
        return tuple(parts)

    def _panels(self, tensor: Tensor) -> Panels:
        match tensor:
            case Affine() if self._mode == "exact":
                return float_panels(Dense(tensor.f32(), "f32"))
            case Affine():
                return affine_panels(tensor, tensor.shape[1])
            case Dense() if self._mode == "exact":
                return float_panels(tensor)
            case Dense():
                return affine_panels(quantized(tensor, 4 if self._mode == "int4" else 8), tensor.shape[1])


def _joined(first: Part, second: Part) -> Part | None:
    """One part of two neighbours that are stored alike."""
    panels = joined(first.panels, second.panels)
    if panels is None:
        return None
    bias = None
    if first.bias is not None or second.bias is not None:
        bias = np.concatenate([padded_bias(first.bias, first.panels), padded_bias(second.bias, second.panels)])
    return Part(panels, first.first, bias)

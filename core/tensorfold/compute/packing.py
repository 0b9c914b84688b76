"""Stored weights to arrays: handles whose matrices are dense in the type of activations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.primitives import Primitives
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Activation, ConvWeight, Embedding, Experts, LatentUp, Linear
from tensorfold.contracts.tensors import Tensor
from tensorfold.errors import BackendError

__all__ = [
    "ComposedPacker",
    "DenseConv",
    "DenseEmbedding",
    "DenseExperts",
    "DenseLatentUp",
    "DenseLinear",
    "one_width",
    "pieces",
]

PIECE: Final = 1 << 17
"""Elements that are turned into floats at a time: memory beside the packed weights is bounded by a few copies of them."""


@dataclass(eq=False)
class DenseLinear(Linear, Generic[A]):
    """A fused group as one matrix."""

    sizes: tuple[int, ...]
    columns: int
    weight: A
    """`[out, in]`, act."""
    bias: A | None
    """`[out]`, act; zeros for a part that has none when another has one."""


@dataclass(eq=False)
class DenseEmbedding(Embedding, Generic[A]):
    """A table of rows."""

    shape: tuple[int, int]
    table: A
    """`[vocabulary, hidden]`, act."""


@dataclass(eq=False)
class DenseExperts(Experts, Generic[A]):
    """Each expert's two matrices."""

    count: int
    up: tuple[DenseLinear[A], ...]
    """`[2 I, H]` (gate, then up) when gated, else `[I, H]`."""
    down: tuple[DenseLinear[A], ...]
    """`[H, I]`."""
    act: Activation
    gated: bool
    limit: float | None


@dataclass(eq=False)
class DenseLatentUp(LatentUp, Generic[A]):
    """MLA's up-projection as it is used when attention runs over the latent itself."""

    heads: int
    key: A
    """`[heads, latent, nope]`, act: turns a query into one over the latent."""
    value: A
    """`[heads, v, latent]`, act: turns a weighed latent into a value."""


@dataclass(eq=False)
class DenseConv(ConvWeight, Generic[A]):
    """A depthwise kernel."""

    channels: int
    kernel: A
    """`[taps, channels]`, real, oldest tap first."""
    bias: A | None
    """`[channels]`, real."""


class ComposedPacker(Generic[A]):
    """Makes dense handles of whatever is stored; quantized matrices are expanded once, here."""

    def __init__(self, primitives: Primitives[A]) -> None:
        self._p = primitives

    def linear(self, parts: Sequence[Tensor], biases: Sequence[Tensor | None]) -> DenseLinear[A]:
        """One matrix of all parts; one bias if any part has one."""
        weight = self.joined(parts)
        sizes = tuple(part.shape[0] for part in parts)
        bias: A | None = None
        if any(each is not None for each in biases):
            filled = [
                np.zeros(size, np.float32) if each is None else each.f32()
                for each, size in zip(biases, sizes, strict=True)
            ]
            bias = self._act(np.concatenate(filled))
        return DenseLinear(sizes, parts[0].shape[1], weight, bias)

    def embedding(self, parts: Sequence[Tensor]) -> DenseEmbedding[A]:
        """One table of all parts."""
        return DenseEmbedding((sum(part.shape[0] for part in parts), parts[0].shape[1]), self.joined(parts))

    def tied(self, embedding: Embedding) -> DenseLinear[A]:
        """The table itself as a matrix."""
        if not isinstance(embedding, DenseEmbedding):
            raise BackendError("a tied head was asked of an embedding that another backend packed")
        packed = cast("DenseEmbedding[A]", embedding)
        return DenseLinear((packed.shape[0],), packed.shape[1], packed.table, None)

    def vector(self, values: NDArray[np.float32]) -> A:
        """As it is, real."""
        return self._p.array(np.asarray(values, dtype=np.float32))

    def conv(self, kernel: NDArray[np.float32], bias: NDArray[np.float32] | None) -> DenseConv[A]:
        """`[channels, taps]` turned, so that one tap of all channels is a row."""
        turned = np.ascontiguousarray(kernel.T, dtype=np.float32)
        return DenseConv(kernel.shape[0], self.vector(turned), None if bias is None else self.vector(bias))

    def experts(
        self,
        up: Sequence[Sequence[Tensor]],
        down: Sequence[Tensor],
        *,
        act: Activation,
        gated: bool,
        limit: float | None,
    ) -> DenseExperts[A]:
        """Two matrices an expert."""
        return DenseExperts(
            count=len(down),
            up=tuple(self.linear(parts, [None] * len(parts)) for parts in up),
            down=tuple(self.linear([each], [None]) for each in down),
            act=act,
            gated=gated,
            limit=limit,
        )

    def latent_up(self, weight: Tensor, heads: int, nope: int, v: int) -> DenseLatentUp[A]:
        """`[heads * (nope + v), latent]`, split by head into key rows and value rows."""
        by_head = weight.f32().reshape(heads, nope + v, -1)
        return DenseLatentUp(
            heads,
            self._act(np.ascontiguousarray(by_head[:, :nope].transpose(0, 2, 1))),
            self._act(np.ascontiguousarray(by_head[:, nope:])),
        )

    def joined(self, parts: Sequence[Tensor]) -> A:
        """Matrices of one width, under each other."""
        target = self._p.zeros((sum(part.shape[0] for part in parts), one_width(parts)), "act")
        row = 0
        for piece in pieces(parts):
            values = piece.f32()
            target = self._p.put(target, self._p.array(np.arange(row, row + len(values))), self._act(values))
            row += len(values)
        return target

    def _act(self, values: NDArray[np.float32]) -> A:
        return self._p.cast(self._p.array(values), "act")


def one_width(parts: Sequence[Tensor]) -> int:
    """The columns of matrices that are to be fused."""
    widths = {part.shape[1] for part in parts}
    if len(widths) != 1:
        raise BackendError(f"matrices of {sorted(widths)} columns cannot be fused: they must have one width")
    return widths.pop()


def pieces(parts: Sequence[Tensor]) -> Iterator[Tensor]:
    """The parts' rows in order, so many at a time that as floats they take half a megabyte."""
    for part in parts:
        rows, columns = part.shape
        step = max(1, PIECE // columns)
        for first in range(0, rows, step):
            yield part.rows(first, min(first + step, rows))

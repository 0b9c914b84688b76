"""torch, as far as the composed operations need it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from tensorfold.compute.block_recurrences import BlockPrimitives
from tensorfold.compute.primitives import Element

__all__ = ["ALIGNED", "TorchPrimitives", "padded"]

ALIGNED = 16
"""Widths of matrices are filled up to a multiple of this, so that every matrix begins on a border of 64 bytes in
float32. MKL's products give other bits where they do not (measured for outputs 7 wide), and a matrix's place in a
batch would decide its bits."""

_BATCH = 512
"""Products of one batched call on a GPU, whose library chooses a kernel by their number."""

_LAZY_BYTES = 1 << 20
"""From this size on zeros on the host are taken from the system, which gives the memory when it is first written."""


def padded(width: int) -> int:
    """The width with what fills it up."""
    return -(-width // ALIGNED) * ALIGNED


class TorchPrimitives(BlockPrimitives[Tensor]):
    """Tensors on one device."""

    def __init__(self, device: torch.device, act: torch.dtype) -> None:
        self.device = device
        self.act = act
        self.on_host = device.type == "cpu"

    # ---- host and device -------------------------------------------------------------------------------------

    def array(self, values: NDArray[Any]) -> Tensor:
        narrow = values.astype(np.float32) if values.dtype.kind == "f" else values
        return torch.tensor(narrow, device=self.device)

    def numpy(self, x: Tensor) -> NDArray[Any]:
        host: NDArray[Any] = (x.float() if x.is_floating_point() else x).cpu().numpy()
        return host

    def export(self, x: Tensor) -> NDArray[Any]:
        bits = x if x.dtype == torch.float32 else x.view(torch.uint16)
        host: NDArray[Any] = bits.cpu().numpy().copy()
        return host

    def restore(self, values: NDArray[Any], element: Element) -> Tensor:
        bits = torch.tensor(values, device=self.device)
        return bits.view(self._dtype(element))

    def itemsize(self, element: Element) -> int:
        return self._dtype(element).itemsize

    def _dtype(self, element: Element) -> torch.dtype:
        return self.act if element == "act" else torch.float32

    # ---- making and writing ----------------------------------------------------------------------------------

    def zeros(self, shape: Sequence[int], element: Element) -> Tensor:
        dtype = self._dtype(element)
        if self.on_host and math.prod(shape) * dtype.itemsize >= _LAZY_BYTES:
            untouched = np.zeros(tuple(shape), np.float32 if dtype.itemsize == 4 else np.uint16)
            return torch.as_tensor(untouched).view(dtype)
        return torch.zeros(tuple(shape), dtype=dtype, device=self.device)

    def cast(self, x: Tensor, element: Element) -> Tensor:
        return x.to(self._dtype(element))

    def like(self, x: Tensor, other: Tensor) -> Tensor:
        return x.to(other.dtype)

    def put(self, target: Tensor, index: Tensor, rows: Tensor) -> Tensor:
        return target.index_copy_(0, index.reshape(-1), rows.reshape(-1, *target.shape[1:]).to(target.dtype))

    # ---- shape -----------------------------------------------------------------------------------------------

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return x.reshape(tuple(shape))

    def concat(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        return torch.cat(list(xs), axis)

    def take(self, x: Tensor, index: Tensor, axis: int = 0) -> Tensor:
        if index.dim() == 1:
            return x.index_select(axis, index)
        axis %= x.dim()
        return x.index_select(axis, index.reshape(-1)).reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])

    def take_along(self, x: Tensor, index: Tensor) -> Tensor:
        return torch.gather(x, -1, index.long())

    # ---- arithmetic ------------------------------------------------------------------------------------------

    def matmul(self, a: Tensor, b: Tensor, *, transposed: bool = False) -> Tensor:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        product = self.pairs(
            a.expand(*lead, *a.shape[-2:]).reshape(-1, *a.shape[-2:]),
            b.expand(*lead, *b.shape[-2:]).reshape(-1, *b.shape[-2:]),
            transposed=transposed,
        )
        return product.reshape(*lead, *product.shape[-2:])

    def pairs(self, a: Tensor, b: Tensor, *, transposed: bool = False) -> Tensor:
        """`[N, m, k]` times `[N, k, n]` (or the transpose of `[N, n, k]`), every pair with the bits it has alone."""
        if self.on_host and a.shape[0] == 1:
            # Threads would share a single pair, and of 5 to 11 rows its bits would tell: it is multiplied twice.
            return self.pairs(torch.cat((a, a)), torch.cat((b, b)), transposed=transposed)[:1]
        inner, outer = a.shape[-1], b.shape[-2] if transposed else b.shape[-1]
        first = self._aligned(a, padded(inner))
        if transposed:
            second = self._aligned(b, padded(inner), rows=padded(outer)).transpose(1, 2)
        else:
            second = self._aligned(b, padded(outer), rows=padded(inner))
        product = torch.bmm(first, second) if self.on_host else self._in_batches(first, second)
        return product if product.shape[-1] == outer else product[..., :outer]

    @staticmethod
    def _aligned(x: Tensor, width: int, *, rows: int | None = None) -> Tensor:
        """`[N, rows, width]` with the strides of its shape, beginning on a border of 64 bytes."""
        count, height = x.shape[0], x.shape[1] if rows is None else rows
        if x.shape == (count, height, width) and x.is_contiguous() and x.data_ptr() % 64 == 0:
            # Sizes of 1 may have any stride, by which the library would take the matrix for a transposed one.
            return x.view(-1).view(count, height, width)
        filled = x.new_zeros((count, height, width))
        filled[:, : x.shape[1], : x.shape[2]] = x
        return filled

    @staticmethod
    def _in_batches(a: Tensor, b: Tensor) -> Tensor:
        """Batches of one size, the last one filled up with zeros."""
        count = a.shape[0]
        missing = -count % _BATCH
        if missing:
            a, b = F.pad(a, (0, 0, 0, 0, 0, missing)), F.pad(b, (0, 0, 0, 0, 0, missing))
        parts = [torch.bmm(a[first : first + _BATCH], b[first : first + _BATCH]) for first in range(0, count, _BATCH)]
        return (parts[0] if len(parts) == 1 else torch.cat(parts))[:count]

    def divide(self, x: Tensor | float, y: Tensor | float) -> Tensor:
        quotient = x / y
        return quotient if isinstance(quotient, Tensor) else torch.tensor(quotient, device=self.device)

    def maximum(self, x: Tensor, y: Tensor | float) -> Tensor:
        return torch.maximum(x, y) if isinstance(y, Tensor) else x.clamp(min=y)

    def minimum(self, x: Tensor, y: Tensor | float) -> Tensor:
        return torch.minimum(x, y) if isinstance(y, Tensor) else x.clamp(max=y)

    def less(self, x: Tensor, y: Tensor | float) -> Tensor:
        return x < y

    def where(self, mask: Tensor, x: Tensor, y: Tensor | float) -> Tensor:
        return torch.where(mask, x, y)

    def exp(self, x: Tensor) -> Tensor:
        return torch.exp(x)

    def tanh(self, x: Tensor) -> Tensor:
        return torch.tanh(x)

    def sqrt(self, x: Tensor) -> Tensor:
        return torch.sqrt(x)

    def log1p(self, x: Tensor) -> Tensor:
        return torch.log1p(x)

    def abs(self, x: Tensor) -> Tensor:
        return torch.abs(x)

    def sign(self, x: Tensor) -> Tensor:
        return torch.sign(x)

    def finite(self, x: Tensor) -> Tensor:
        return torch.nan_to_num(x)

    def largest(self, x: Tensor, axis: int) -> Tensor:
        return x.amax(axis, keepdim=True)

    def argsort(self, x: Tensor) -> Tensor:
        return torch.sort(x, dim=-1, descending=True, stable=True).indices

    def sum(self, x: Tensor, axis: int) -> Tensor:
        return self.folded(x.clone(), axis)

    @staticmethod
    def folded(x: Tensor, axis: int) -> Tensor:
        """The sum over an axis by adjacent pairs, the order that `Primitives.sum` defines; overwrites x.

        PERF: in place, without a new tensor for each round of pairs: 15 us instead of 30 for 9 blocks of 8 rows.
        """
        count, step = x.shape[axis], 1
        by_place = x.movedim(axis, 0)
        while step < count:
            by_place[0 : count - step : 2 * step] += by_place[step : count : 2 * step]
            step *= 2
        return by_place[0]

    # ---- blocks of a chunk's rows ----------------------------------------------------------------------------

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    def permute(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        return x.permute(*axes)

    def turn(self, x: Tensor) -> Tensor:
        return x.transpose(-1, -2)

    def cumsum(self, x: Tensor, axis: int) -> Tensor:
        return x.cumsum(axis)

    def total(self, x: Tensor) -> Tensor:
        return x.sum(-1)

    def tril(self, x: Tensor, diagonal: int) -> Tensor:
        return x.tril(diagonal)

    def solve(self, lower: Tensor, wanted: Tensor) -> Tensor:
        solver = cast("Callable[..., Tensor]", torch.linalg.solve_triangular)  # pyright: ignore[reportUnknownMemberType]
        # The ones of the diagonal are not read.
        return solver(lower, wanted, upper=False, unitriangular=True)

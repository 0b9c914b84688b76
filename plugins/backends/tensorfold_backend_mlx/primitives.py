"""MLX, as far as the composed operations need it.

Arrays are promises: an operation returns at once, and what it gives is computed when somebody asks. A promise can be
kept only on the stream that it was made for, and a stream belongs to the thread that made it; models are loaded on one
thread and run on another, so a session has one stream for any thread, which must not be used by two at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.block_recurrences import BlockPrimitives
from tensorfold.compute.primitives import Element

__all__ = ["MlxPrimitives", "compute"]

_FLOATS = (mx.float32, mx.bfloat16, mx.float16)


def compute(*arrays: mx.array) -> None:
    """Keep these promises now."""
    mx.eval(*arrays)  # pyright: ignore[reportUnknownMemberType]


class MlxPrimitives(BlockPrimitives[mx.array]):
    """Arrays on one device."""

    def __init__(self, device: mx.Device, act: mx.Dtype) -> None:
        self.device = device
        self.act = act
        self.on_host = device.type == mx.DeviceType.cpu
        self._stream = mx.new_thread_unsafe_stream(device)

    def here(self) -> None:
        """From now on this thread makes its promises for the session's device and stream."""
        mx.set_default_device(self.device)
        mx.set_default_stream(self._stream)

    # ---- host and device -------------------------------------------------------------------------------------

    def array(self, values: NDArray[Any]) -> mx.array:
        self.here()
        narrow = values.astype(np.float32) if values.dtype.kind == "f" else values
        return mx.array(narrow)

    def numpy(self, x: mx.array) -> NDArray[Any]:
        self.here()
        return cast("NDArray[Any]", np.array(x.astype(mx.float32) if x.dtype in _FLOATS else x))

    def export(self, x: mx.array) -> NDArray[Any]:
        self.here()
        return cast("NDArray[Any]", np.array(x if x.dtype == mx.float32 else x.view(mx.uint16)))

    def restore(self, values: NDArray[Any], element: Element) -> mx.array:
        self.here()
        return mx.array(values).view(self.dtype(element))

    def itemsize(self, element: Element) -> int:
        return self.dtype(element).size

    def dtype(self, element: Element) -> mx.Dtype:
        """MLX's own name for an element type."""
        return self.act if element == "act" else mx.float32

    # ---- making and writing ----------------------------------------------------------------------------------

    def zeros(self, shape: Sequence[int], element: Element) -> mx.array:
        self.here()
        return mx.zeros(tuple(shape), self.dtype(element))

    def cast(self, x: mx.array, element: Element) -> mx.array:
        return x.astype(self.dtype(element))

    def like(self, x: mx.array, other: mx.array) -> mx.array:
        return x.astype(other.dtype)

    def put(self, target: mx.array, index: mx.array, rows: mx.array) -> mx.array:
        # The old memory is written to when nobody else holds it, which is why no store keeps a second name for a pool.
        target[mx.flatten(index)] = mx.reshape(rows, (-1, *target.shape[1:])).astype(target.dtype)
        return target

    # ---- shape -----------------------------------------------------------------------------------------------

    def reshape(self, x: mx.array, shape: Sequence[int]) -> mx.array:
        return mx.reshape(x, tuple(shape))

    def concat(self, xs: Sequence[mx.array], axis: int) -> mx.array:
        return mx.concatenate(list(xs), axis)

    def take(self, x: mx.array, index: mx.array, axis: int = 0) -> mx.array:
        return mx.take(x, index, axis)

    def take_along(self, x: mx.array, index: mx.array) -> mx.array:
        return mx.take_along_axis(x, index, -1)

    # ---- arithmetic ------------------------------------------------------------------------------------------

    def matmul(self, a: mx.array, b: mx.array, *, transposed: bool = False) -> mx.array:
        return mx.matmul(a, b.swapaxes(-1, -2) if transposed else b)

    def divide(self, x: mx.array | float, y: mx.array | float) -> mx.array:
        return mx.divide(x, y)

    def maximum(self, x: mx.array, y: mx.array | float) -> mx.array:
        return mx.maximum(x, y)

    def minimum(self, x: mx.array, y: mx.array | float) -> mx.array:
        return mx.minimum(x, y)

    def less(self, x: mx.array, y: mx.array | float) -> mx.array:
        return mx.less(x, y)

    def where(self, mask: mx.array, x: mx.array, y: mx.array | float) -> mx.array:
        return mx.where(mask, x, y)

    def exp(self, x: mx.array) -> mx.array:
        return mx.exp(x)

    def tanh(self, x: mx.array) -> mx.array:
        return mx.tanh(x)

    def sqrt(self, x: mx.array) -> mx.array:
        return mx.sqrt(x)

    def log1p(self, x: mx.array) -> mx.array:
        return mx.log1p(x)

    def abs(self, x: mx.array) -> mx.array:
        return mx.abs(x)

    def sign(self, x: mx.array) -> mx.array:
        return mx.sign(x)

    def finite(self, x: mx.array) -> mx.array:
        return mx.nan_to_num(x)

    def largest(self, x: mx.array, axis: int) -> mx.array:
        return mx.max(x, axis, keepdims=True)

    def argsort(self, x: mx.array) -> mx.array:
        # MLX merges on every device, which keeps equals in their order. Unsigned indices could not be negated later.
        return mx.argsort(-x, -1).astype(mx.int32)

    # ---- blocks of a chunk's rows ----------------------------------------------------------------------------

    def product(self, a: mx.array, b: mx.array) -> mx.array:
        return a @ b

    def permute(self, x: mx.array, axes: Sequence[int]) -> mx.array:
        return mx.transpose(x, tuple(axes))

    def turn(self, x: mx.array) -> mx.array:
        return x.swapaxes(-1, -2)

    def cumsum(self, x: mx.array, axis: int) -> mx.array:
        return mx.cumsum(x, axis)

    def total(self, x: mx.array) -> mx.array:
        return mx.sum(x, -1)

    def tril(self, x: mx.array, diagonal: int) -> mx.array:
        return mx.tril(x, diagonal)

    def solve(self, lower: mx.array, wanted: mx.array) -> mx.array:
        # MLX has no solver on a GPU: the inverses of two neighbouring blocks give that of both together.
        size = lower.shape[-1]
        inverse, index, half = mx.eye(size), mx.arange(size), 1
        while half < size:
            pair, second = index // (2 * half), (index // half) % 2
            between = mx.logical_and(pair[:, None] == pair, second[:, None] > second)
            inverse = inverse - inverse @ mx.where(between, lower, 0.0) @ inverse
            half *= 2
        return inverse @ wanted

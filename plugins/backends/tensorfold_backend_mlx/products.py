"""Products with packed matrices, for rows that must not see each other and for whole chunks."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from tensorfold.compute.composed_pure import TILE, handle
from tensorfold.contracts.handles import Linear
from tensorfold_backend_mlx.matrices import CodedMatrix, FloatMatrix, Matrix
from tensorfold_backend_mlx.packing import MlxLinear

__all__ = ["in_rows", "linear", "whole"]

_CODED_ROWS = 4
"""Rows of one product with codes on a GPU. MLX reads the codes once for each row up to at least 5 rows (10 on most
chips), with the bits that the row has alone, and takes another kernel beyond that."""


def linear(
    x: mx.array, weight: Linear, act: mx.Dtype, product: Callable[[mx.array, Matrix], mx.array], *, wide: bool
) -> mx.array:
    """`[R, I]` to `[R, O]`, in act or in f32: the matrices of a fused group, side by side, and their bias."""
    packed: MlxLinear = handle(weight, MlxLinear)
    matrices, bias = packed.parts(wide=wide)
    parts = [product(x, each).astype(mx.float32 if wide else act) for each in matrices]
    y = parts[0] if len(parts) == 1 else mx.concatenate(parts, -1)
    return y if bias is None else y + bias


def whole(x: mx.array, matrix: Matrix) -> mx.array:
    """`[..., I]` times the transposed matrix, in one call."""
    match matrix:
        case FloatMatrix(weight=weight):
            return mx.matmul(x.astype(weight.dtype), weight.T)
        case CodedMatrix(words, scales, biases, bits, group):
            return mx.quantized_matmul(x.astype(scales.dtype), words, scales, biases, group_size=group, bits=bits)


def in_rows(x: mx.array, matrix: Matrix, *, on_host: bool) -> mx.array:
    """The same, each row with the bits that it has alone."""
    if on_host:
        # The host multiplies matrix by matrix, in a time that grows with the rows in any case.
        return whole(x[:, None], matrix)[:, 0]
    if isinstance(matrix, FloatMatrix):
        return _in_tiles(x, matrix)
    parts = [whole(x[first : first + _CODED_ROWS], matrix) for first in range(0, x.shape[0], _CODED_ROWS)]
    return parts[0] if len(parts) == 1 else mx.concatenate(parts, 0)


def _in_tiles(x: mx.array, matrix: FloatMatrix) -> mx.array:
    """Tiles of one shape, the last one filled up with zeros: a kernel is chosen by the number of rows."""
    rows = x.shape[0]
    filled = mx.pad(x, [(0, -rows % TILE), (0, 0)])
    parts = [whole(filled[first : first + TILE], matrix) for first in range(0, rows, TILE)]
    return (parts[0] if len(parts) == 1 else mx.concatenate(parts, 0))[:rows]

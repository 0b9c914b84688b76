"""Matrices in the quantized formats of published checkpoints, each made by the format's own description.

Every function gives the stored tensors of one matrix and the values that they stand for, computed from the codes before
these are packed; what reads them shall find the same values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tensorfold.testing.safetensors_writer import Stored, bfloat16

__all__ = ["Quantized", "float4", "float8", "integers", "mlx_affine", "word_integers"]

Floats = NDArray[np.float32]

_E2M1: Final = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """One matrix."""

    stored: Mapping[str, Stored]
    values: Floats


def mlx_affine(module: str, matrix: Floats, *, bits: int, group: int) -> Quantized:
    """MLX: `.weight` words of a bit stream, `.scales` and `.biases` in bfloat16."""
    grouped = matrix.reshape(*matrix.shape[:-1], -1, group)
    low, high = grouped.min(-1), grouped.max(-1)
    scales = _rounded(np.maximum((high - low) / ((1 << bits) - 1), 1e-6))
    biases = _rounded(low)
    codes = np.clip(np.rint((grouped - biases[..., None]) / scales[..., None]), 0, (1 << bits) - 1).astype(np.uint8)
    values = codes.astype(np.float32) * scales[..., None] + biases[..., None]
    flat = codes.reshape(matrix.shape)
    stream = (flat[..., None] >> np.arange(bits, dtype=np.uint8) & 1).reshape(*matrix.shape[:-1], -1)
    words = np.packbits(stream, axis=-1, bitorder="little").view("<u4")
    return Quantized(
        {
            f"{module}.weight": Stored("U32", words),
            f"{module}.scales": Stored("BF16", bfloat16(scales)),
            f"{module}.biases": Stored("BF16", bfloat16(biases)),
        },
        values.reshape(matrix.shape).astype(np.float32),
    )


def float8(name: str, matrix: Floats, *, block: tuple[int, int] | None, inverse: bool = True) -> Quantized:
    """E4M3 in blocks, with `_scale_inv` (or `_scale`) in float32; None: one scale for all."""
    rows, columns = matrix.shape
    high, wide = block or (rows, columns)
    scales = np.array(
        [
            [np.abs(matrix[row : row + high, column : column + wide]).max() / 448 for column in range(0, columns, wide)]
            for row in range(0, rows, high)
        ],
        np.float32,
    )
    spread = np.repeat(np.repeat(scales, high, 0)[:rows], wide, 1)[:, :columns]
    codes, values = _e4m3(matrix / spread)
    shown = scales if block else scales.reshape(())
    suffix = "_scale_inv" if inverse else "_scale"
    return Quantized({name: Stored("F8_E4M3", codes), f"{name}{suffix}": Stored("F32", shown)}, values * spread)


def float4(module: str, matrix: Floats, *, packed: bool) -> Quantized:
    """NVFP4: as compressed-tensors writes it (`packed`: the scale of the whole divides), or as Model Optimizer."""
    grouped = matrix.reshape(len(matrix), -1, 16)
    whole = np.float32(np.abs(matrix).max() / (6 * 448))
    told = np.float32(1) / whole if packed else whole
    scale_codes, scales = _e4m3((np.abs(grouped).max(-1) / 6) / whole)
    scales = scales / told if packed else scales * told
    distance = np.abs(np.abs(grouped / np.where(scales, scales, 1)[..., None])[..., None] - _E2M1)
    codes = (distance.argmin(-1) | (grouped < 0) << 3).astype(np.uint8)
    values = np.where(codes & 8, -1, 1) * _E2M1[codes & 7].astype(np.float32) * scales[..., None]
    halves = codes.reshape(matrix.shape)
    bytes = halves[:, 0::2] | halves[:, 1::2] << 4
    names = ("weight_packed", "weight_global_scale") if packed else ("weight", "weight_scale_2")
    return Quantized(
        {
            f"{module}.{names[0]}": Stored("U8", bytes),
            f"{module}.weight_scale": Stored("F8_E4M3", scale_codes),
            f"{module}.{names[1]}": Stored("F32", np.full((1,) if packed else (), told, np.float32)),
        },
        values.reshape(matrix.shape).astype(np.float32),
    )


def word_integers(module: str, matrix: Floats, *, bits: int, group: int | None, symmetric: bool) -> Quantized:
    """compressed-tensors' pack-quantized; `group` None: one scale a row."""
    rows, columns = matrix.shape
    grouped = matrix.reshape(rows, -1, group or columns)
    scales, zeros, codes = _integers(grouped, bits, symmetric)
    values = (codes - zeros[..., None]) * scales[..., None]
    shift = 1 << (bits - 1)
    stored = {
        f"{module}.weight_packed": Stored("I32", _words(codes.reshape(rows, columns) + shift, bits)),
        f"{module}.weight_scale": Stored("BF16", bfloat16(scales)),
        f"{module}.weight_shape": Stored("I64", np.array([rows, columns])),
    }
    if not symmetric:
        turned = _words((zeros + shift).T.astype(np.int64), bits)
        stored[f"{module}.weight_zero_point"] = Stored("I32", np.ascontiguousarray(turned.T))
    return Quantized(stored, values.reshape(matrix.shape).astype(np.float32))


def integers(module: str, matrix: Floats) -> Quantized:
    """compressed-tensors' int-quantized: signed bytes, one scale a row."""
    scales, _, codes = _integers(matrix[:, None], 8, True)
    values = codes * scales[..., None]
    return Quantized(
        {
            f"{module}.weight": Stored("I8", codes.reshape(matrix.shape).astype(np.int8)),
            f"{module}.weight_scale": Stored("BF16", bfloat16(scales)),
        },
        values.reshape(matrix.shape).astype(np.float32),
    )


def _rounded(values: Floats) -> Floats:
    """To bfloat16 and back."""
    return (bfloat16(values.astype(np.float32)).astype(np.uint32) << 16).view(np.float32)


def _integers(grouped: Floats, bits: int, symmetric: bool) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Scales, zero points and signed codes of groups."""
    lowest, highest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    low, high = grouped.min(-1), grouped.max(-1)
    spread = np.maximum(np.abs(low), np.abs(high)) / highest if symmetric else (high - low) / (highest - lowest)
    scales = _rounded(np.maximum(spread, 1e-6))
    zeros = np.zeros(low.shape, np.int64) if symmetric else np.clip(np.rint(lowest - low / scales), lowest, highest)
    codes = np.clip(np.rint(grouped / scales[..., None]) + zeros[..., None], lowest, highest)
    return scales, zeros.astype(np.int64), codes.astype(np.int64)


def _words(codes: NDArray[np.int64], bits: int) -> NDArray[np.int32]:
    """As many codes in a word as fit whole, the first one lowest; the last word is filled up with zeros."""
    each = 32 // bits
    filled = np.pad(codes, ((0, 0), (0, -codes.shape[1] % each))).reshape(len(codes), -1, each)
    words: NDArray[np.int32] = (filled << np.arange(each) * bits).sum(-1).astype(np.uint32).view(np.int32)
    return words


def _e4m3(values: Floats) -> tuple[NDArray[np.uint8], Floats]:
    """The nearest E4M3 floats (ties to even) of values up to 448, as codes and as values."""
    size = np.abs(values).astype(np.float64)
    exponent = np.clip(np.floor(np.log2(np.where(size, size, 1.0))), -6, 8)
    step = np.exp2(exponent - 3)
    rounded = np.minimum(np.rint(size / step) * step, 448)
    exponent = np.clip(np.floor(np.log2(np.where(rounded, rounded, 1e-9))), -7, 8)
    fraction = np.where(exponent < -6, rounded / np.exp2(-9), (rounded / np.exp2(np.maximum(exponent, -6)) - 1) * 8)
    codes = (np.maximum(exponent + 7, 0).astype(np.int64) << 3) + fraction.astype(np.int64)
    codes |= (values < 0).astype(np.int64) << 7
    return codes.astype(np.uint8), np.where(values < 0, -rounded, rounded).astype(np.float32)

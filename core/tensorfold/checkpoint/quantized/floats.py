"""Floats of 8 and 4 bits, each with a scale for many: expanded to float32.

E4M3: https://arxiv.org/abs/2209.05433 (the variant without infinities). E2M1 and its blocks of 16 with E4M3 scales:
NVIDIA's NVFP4. In a byte of two E2M1 values the lower half is the earlier one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["E2M1", "E4M3", "E8M0", "FLOAT4_GROUP", "expand_float4", "expand_float8"]

FLOAT4_GROUP: Final = 16
"""Columns that share one scale."""

_PIECE: Final = 1 << 20
"""Elements expanded at a time, so that what lies between codes and values stays small."""


def _e4m3() -> NDArray[np.float32]:
    code = np.arange(256)
    exponent, fraction = code >> 3 & 0xF, code & 0x7
    size = np.where(exponent == 0, np.ldexp(fraction / 8, -6), np.ldexp(1 + fraction / 8, exponent - 7))
    size[(code & 0x7F) == 0x7F] = np.nan
    return np.where(code & 0x80, -size, size).astype(np.float32)


E4M3: Final = _e4m3()
"""The value of each byte."""

E8M0: Final = np.append(np.exp2(np.arange(255) - 127.0), np.nan).astype(np.float32)
"""A scale that is an exponent alone."""

_HALF: Final = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)
E2M1: Final = np.concatenate([_HALF, -_HALF])
"""The value of each half byte."""


def expand_float8(codes: NDArray[np.uint8], scales: NDArray[np.float32], block: tuple[int, int]) -> NDArray[np.float32]:
    """`[..., rows, columns]` codes times `[..., rows / block, columns / block]` scales, blocks cut at the borders."""
    values = np.empty(codes.shape, np.float32)
    rows, columns = codes.shape[-2:]
    high, wide = block
    for matrix, target, factors in zip(
        codes.reshape(-1, rows, columns),
        values.reshape(-1, rows, columns),
        scales.reshape(-1, *scales.shape[-2:]),
        strict=True,
    ):
        step = high if high < rows else max(1, _PIECE // columns)
        for first in range(0, rows, step):
            piece = slice(first, first + step)
            np.take(E4M3, matrix[piece], out=target[piece], mode="clip")
            target[piece] *= np.repeat(factors[first // high], wide)[:columns]
    return values


def expand_float4(codes: NDArray[np.uint8], scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """`[..., columns / 2]` bytes times `[..., columns / 16]` scales."""
    columns = 2 * codes.shape[-1]
    values = np.empty((*codes.shape[:-1], columns), np.float32)
    bytes, factors = codes.reshape(-1, columns // 2), scales.reshape(-1, columns // FLOAT4_GROUP)
    target = values.reshape(-1, columns)
    step = max(1, _PIECE // columns)
    for first in range(0, len(bytes), step):
        piece = slice(first, first + step)
        target[piece, 0::2] = E2M1[bytes[piece] & 0x0F]
        target[piece, 1::2] = E2M1[bytes[piece] >> 4]
        target[piece] *= np.repeat(factors[piece], FLOAT4_GROUP, axis=-1)
    return values

"""Floats of 8 and 4 bits, each with a scale for many: expanded to float32.

E4M3: https://arxiv.org/abs/2209.05433 (the variant without infinities). E2M1 and its blocks of 16 with E4M3 scales:
NVIDIA's NVFP4. In a byte of two E2M1 values the lower half is the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["E2M1", "E4M3", "E8M0", "FLOAT4_GROUP", "expand_float4", "expand_float8"]

FLOAT4_GROUP: Final = 16
"""Columns that share one scale."""

_PIECE: Final = 1 << 16
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


def expand_float8(
    codes: NDArray[np.uint8], scales: NDArray[np.float32], block: tuple[int, int], first: int = 0
) -> NDArray[np.float32]:
    """`[rows, columns]` codes from row `first` of a matrix on, times the scales of all its blocks, which are cut at its
    borders."""
    rows, columns = codes.shape
    high, wide = block
    values = np.empty(codes.shape, np.float32)
    for start, piece in _pieces(rows, columns):
        np.take(E4M3, codes[piece], out=values[piece], mode="clip")
        places = np.arange(first + start, first + start + len(values[piece])) // high
        values[piece] *= np.repeat(scales[places], wide, axis=-1)[:, :columns]
    return values


def expand_float4(codes: NDArray[np.uint8], scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """`[rows, columns / 2]` bytes times `[rows, columns / 16]` scales."""
    rows, half = codes.shape
    values = np.empty((rows, 2 * half), np.float32)
    for _, piece in _pieces(rows, 2 * half):
        values[piece, 0::2] = E2M1[codes[piece] & 0x0F]
        values[piece, 1::2] = E2M1[codes[piece] >> 4]
        values[piece] *= np.repeat(scales[piece], FLOAT4_GROUP, axis=-1)
    return values


def _pieces(rows: int, columns: int) -> Iterator[tuple[int, slice]]:
    """Slices of rows, and where each begins."""
    step = max(1, _PIECE // columns)
    for start in range(0, rows, step):
        yield start, slice(start, start + step)

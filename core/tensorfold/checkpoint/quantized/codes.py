"""Integers of 2 to 8 bits: how they are packed in checkpoints, and as `Affine` has them.

MLX packs a row as one stream of bits, lowest bit first (https://ml-explore.github.io/mlx, `quantize`).
compressed-tensors packs as many codes into each 32-bit word as fit whole, lowest bits first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tensorfold.checkpoint.unpacking import Unpacking
from tensorfold.contracts.tensors import Affine

__all__ = ["GROUPS", "affine", "in_words", "stream_codes", "word_codes"]

GROUPS: Final = (128, 64, 32, 16)
"""Columns that may share a scale in an `Affine`."""

_PIECE: Final = 1 << 16
"""Codes unpacked at a time: each takes a byte a bit on the way."""


def in_words(bits: int) -> int:
    """Codes of so many bits in a 32-bit word."""
    return 32 // bits


def stream_codes(packed: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """`[rows, columns * bits / 32]` words of a bit stream as the codes of an `Affine`."""
    rows = packed.view(np.uint8)
    if bits in (4, 8):
        return rows  # as `Affine` has them
    columns = rows.shape[-1] * 8 // bits
    codes = np.empty((len(rows), columns if bits > 4 else columns // 2), np.uint8)
    powers = np.left_shift(1, np.arange(bits)).astype(np.uint8)
    step = max(1, _PIECE // columns)
    for first in range(0, len(rows), step):
        piece = slice(first, first + step)
        stream = np.unpackbits(rows[piece], axis=-1, bitorder="little").reshape(-1, columns, bits)
        codes[piece] = _halved((stream * powers).sum(-1, dtype=np.uint8), bits)
    return codes


def word_codes(packed: NDArray[Any], bits: int, columns: int) -> NDArray[np.uint8]:
    """`[rows, words]` 32-bit words as the codes of an `Affine` of so many columns."""
    words = packed.view(np.uint32)
    if bits in (4, 8) and words.shape[-1] * in_words(bits) == columns:
        return words.view(np.uint8)
    shifts = np.arange(in_words(bits), dtype=np.uint32) * np.uint32(bits)
    codes = np.empty((len(words), columns if bits > 4 else columns // 2), np.uint8)
    step = max(1, _PIECE // columns)
    for first in range(0, len(words), step):
        piece = slice(first, first + step)
        spread = words[piece, :, None] >> shifts & np.uint32((1 << bits) - 1)
        codes[piece] = _halved(spread.reshape(len(spread), -1)[:, :columns].astype(np.uint8), bits)
    return codes


def affine(
    bits: int,
    group: int,
    packed: NDArray[Any],
    columns: int,
    unpack: Callable[[NDArray[Any]], NDArray[np.uint8]],
    scales: NDArray[np.float32],
    biases: NDArray[np.float32],
) -> Affine:
    """An `Affine` of so many columns, whose codes `unpack` makes of rows of what is packed, when they are read.

    A group that it may not have is cut into ones that it may, with the same scale.
    """
    size = next(each for each in GROUPS if group % each == 0 and columns % each == 0)
    if size != group:
        scales, biases = (np.repeat(each, group // size, axis=-1) for each in (scales, biases))
    rows = packed.reshape(-1, packed.shape[-1])
    return Unpacking(bits, size, scales, biases, lambda first, last: unpack(rows[first:last]))


def _halved(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Codes of up to four bits, two a byte, the earlier one below."""
    if bits > 4:
        return codes
    packed: NDArray[np.uint8] = codes[..., 0::2] | codes[..., 1::2] << np.uint8(4)
    return packed

"""Floats to affine codes, when a checkpoint is loaded."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.tensors import Affine, Dense

__all__ = ["GROUP", "quantized"]

GROUP: Final = 32
"""Columns that share a scale."""


def quantized(tensor: Dense, bits: Literal[4, 8]) -> Affine:
    """A matrix `[out, in]` in groups of 32 columns; columns of zeros fill up the last group.

    With 8 bits a group's largest magnitude is 127 steps from the centre; with 4, its range is divided into 15 steps.
    Scales and biases are rounded to half precision before codes are chosen, so that they lie as they are used.
    """
    values = tensor.f32()
    rows, columns = values.shape
    padded = -(-columns // GROUP) * GROUP
    if padded != columns:
        values = np.pad(values, ((0, 0), (0, padded - columns)))
    groups = values.reshape(rows, -1, GROUP)
    scales, biases = _eight(groups) if bits == 8 else _four(groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = (groups - biases[..., None]) / scales[..., None]
    codes = np.clip(np.rint(np.nan_to_num(steps)), 0, 255 if bits == 8 else 15).astype(np.uint8).reshape(rows, padded)
    if bits == 4:
        codes = (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)
    return Affine(bits=bits, group=GROUP, codes=codes, scales=scales, biases=biases)


def _eight(groups: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    scales = _halved(np.abs(groups).max(-1) / np.float32(127.0))
    return scales, np.float32(-128.0) * scales


def _four(groups: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    low, high = groups.min(-1), groups.max(-1)
    return _halved((high - low) / np.float32(15.0)), _halved(low)


def _halved(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rounded to half precision, unless they are too large or too small for it."""
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16).astype(np.float32)
    fits = np.isfinite(halves).all() and not ((np.abs(halves) < 6.2e-5) & (values != 0)).any()
    return halves if fits else values

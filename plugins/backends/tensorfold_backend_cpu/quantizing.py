"""Floats to affine codes, when a checkpoint is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.tensors import Affine, Dense
from tensorfold_backend_cpu.panels import SLAB

__all__ = ["GROUP", "Quantizer", "quantized"]

GROUP: Final = 32
"""Columns that share a scale."""


@dataclass(frozen=True, slots=True, eq=False)
class Quantizer:
    """A matrix `[out, in]` in groups of 32 columns; columns of zeros fill up the last group.

    With 8 bits a group's largest magnitude is 127 steps from the centre; with 4, its range is divided into 15 steps.
    Scales and biases are rounded to half precision before codes are chosen, so that they lie as they are used.
    """

    tensor: Dense
    bits: Literal[4, 8]
    scales: NDArray[np.float32]
    """`[out, groups]`."""
    biases: NDArray[np.float32]

    @classmethod
    def of(cls, tensor: Dense, bits: Literal[4, 8]) -> Self:
        """Reads the matrix once, a few rows at a time, for the groups' ranges."""
        rows, columns = tensor.shape
        low, high = (np.empty((rows, -(-columns // GROUP)), np.float32) for _ in range(2))
        step = max(1, SLAB // columns)
        for first in range(0, rows, step):
            groups = _groups(tensor.rows(first, first + step))
            groups.min(-1, out=low[first : first + step])
            groups.max(-1, out=high[first : first + step])
        scales, biases = _eight(low, high) if bits == 8 else _four(low, high)
        return cls(tensor, bits, scales, biases)

    def codes(self, first: int, last: int) -> NDArray[np.uint8]:
        """Those of some rows, one a byte; the last group's are whole."""
        groups = _groups(self.tensor.rows(first, last))
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = (groups - self.biases[first:last, :, None]) / self.scales[first:last, :, None]
        chosen: NDArray[np.uint8] = np.clip(np.rint(np.nan_to_num(steps)), 0, 255 if self.bits == 8 else 15).astype(
            np.uint8
        )
        return chosen.reshape(len(groups), -1)


def quantized(tensor: Dense, bits: Literal[4, 8]) -> Affine:
    """The whole matrix, quantized."""
    made = Quantizer.of(tensor, bits)
    codes = made.codes(0, tensor.shape[0])
    if bits == 4:
        codes = (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)
    return Affine(bits=bits, group=GROUP, codes=codes, scales=made.scales, biases=made.biases)


def _groups(tensor: Dense) -> NDArray[np.float32]:
    """`[rows, groups, 32]`."""
    values = tensor.f32()
    rows, columns = values.shape
    missing = -columns % GROUP
    if missing:
        values = np.pad(values, ((0, 0), (0, missing)))
    return values.reshape(rows, -1, GROUP)


def _eight(low: NDArray[np.float32], high: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    largest: NDArray[np.float32] = np.maximum(np.abs(low), np.abs(high))
    largest /= np.float32(127.0)
    scales = _halved(largest)
    return scales, np.float32(-128.0) * scales


def _four(low: NDArray[np.float32], high: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return _halved((high - low) / np.float32(15.0)), _halved(low)


def _halved(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rounded to half precision, unless they are too large or too small for it."""
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16).astype(np.float32)
    fits = np.isfinite(halves).all() and not ((np.abs(halves) < 6.2e-5) & (values != 0)).any()
    return halves if fits else values

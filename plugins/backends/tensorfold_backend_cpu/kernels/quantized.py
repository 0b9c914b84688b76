"""Rows of activations as 8-bit integers, a scale for each step of columns: what quantized matrices are multiplied with.

A step has 32 columns (16 for matrices of such narrow groups). Of each: code = round(x * 127 / largest magnitude), the
scale, minus the sum of the codes, and the sum times the scale (for matrices whose groups have biases).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorfold_backend_cpu.kernels.calls import Call, done_by, numbers
from tensorfold_backend_cpu.kernels.compiling import kernel, real
from tensorfold_backend_cpu.kernels.simd import (
    field,
    largest_magnitude,
    load,
    load_first,
    round_to_bytes,
    store_float,
    store_int,
)

__all__ = ["BLOCK", "Quantize", "quantize_columns", "quantize_rows"]

BLOCK: Final = 512
"""Columns of one item of work."""


@kernel
def quantize_columns(x: int, columns: int, step: int, first: int, last: int, target: int, row: int) -> None:
    """Columns `first` to `last` (whole steps) of one row.

    Args:
        x: the row's floats.
        columns: how many there are; those behind count as zeros.
        step: 16 or 32.
        target: six words: codes, sums, factors, offsets, and the strides in bytes of the first and of the others.
        row: its number in the target.
    """
    codes = field(target, 0) + row * field(target, 4)
    place = row * field(target, 5)
    sums, factors, offsets = field(target, 1) + place, field(target, 2) + place, field(target, 3) + place
    for start in range(first, last, step):
        left = columns - start
        if left >= step:
            low = load(x + 4 * start)
            high = load(x + 4 * start + 64) if step == 32 else low
        else:
            low = load_first(x + 4 * start, max(0, left))
            high = load_first(x + 4 * start + 64, max(0, left - 16)) if step == 32 else low
        largest = largest_magnitude(low, high)
        scale = largest / real(127.0)
        inverse = real(127.0) / largest if largest > real(0.0) else real(0.0)
        total = round_to_bytes(codes + start, low, inverse)
        if step == 32:
            total += round_to_bytes(codes + start + 16, high, inverse)
        number = start // step
        store_int(sums + 4 * number, -total)
        store_float(factors + 4 * number, scale)
        store_float(offsets + 4 * number, scale * real(total))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantize(Call):
    """Rows to integers; an item is `BLOCK` columns of a row."""

    x: int
    x_stride: int
    """Bytes from row to row."""
    columns: int
    step: int
    padded: int
    """Columns up to the end of the last step."""
    target: int
    """Where the six words of `quantize_columns` are."""


(_X, _X_STRIDE, _COLUMNS, _STEP, _PADDED, _TARGET) = numbers(Quantize)


@done_by(Quantize)
def quantize_rows(call: int, item: int, scratch: int) -> None:
    """One item of `Quantize`."""
    padded = field(call, _PADDED)
    blocks = (padded + BLOCK - 1) // BLOCK
    row, block = item // blocks, item % blocks
    first = block * BLOCK
    quantize_columns(
        field(call, _X) + row * field(call, _X_STRIDE),
        field(call, _COLUMNS),
        field(call, _STEP),
        first,
        min(padded, first + BLOCK),
        field(call, _TARGET),
        row,
    )

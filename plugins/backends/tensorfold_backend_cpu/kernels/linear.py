"""Matrices times rows. Panels of 16 output rows are shared out; every panel is read once for all rows of a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from numba import types
from numba.extending import overload

from tensorfold_backend_cpu.kernels.calls import Call, numbers
from tensorfold_backend_cpu.kernels.compiling import Kernel, kernel
from tensorfold_backend_cpu.kernels.simd import add, field, load, load_first, store, store_first
from tensorfold_backend_cpu.kernels.tiles import AFFINE_ROWS, FLOAT_ROWS, Stored, affine_tile, float_tile

__all__ = [
    "AFFINE_KERNELS",
    "AFFINE_KINDS",
    "FLOAT_KERNELS",
    "FLOAT_KINDS",
    "AffineKind",
    "AffineLinear",
    "FloatLinear",
]


@dataclass(frozen=True, slots=True)
class AffineKind:
    """How a quantized matrix lies: each kind has a kernel of its own."""

    bits: int
    """Of a stored code: 4 or 8."""
    step: int
    """Columns whose activations share a scale: 16 or 32."""
    wide: bool
    """Scales and biases are floats instead of half floats."""
    biased: bool
    """Groups have biases; else every code is centred at the same power of two."""


AFFINE_KINDS: Final = tuple(
    AffineKind(bits, step, wide, biased)
    for bits in (4, 8)
    for step in (32, 16)
    for wide in (False, True)
    for biased in (False, True)
)
FLOAT_KINDS: Final[tuple[Stored, ...]] = ("f32", "f16", "bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Product(Call):
    """What both kinds of product share. An item is `panels_an_item` panels for `rows_an_item` rows."""

    rows: int
    rows_an_item: int
    panels: int
    panels_an_item: int
    outputs: int
    """Output rows; the last panel may be partly empty."""
    bias: int
    """Floats, to the end of the last panel; 0: none."""
    residual: int
    """Rows that are added last; 0: none."""
    residual_stride: int
    out: int
    out_stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AffineLinear(Product):
    """Quantized weights, integers as activations."""

    target: int
    """The activations' six words, as in `quantize_columns`."""
    steps: int
    codes: int
    codes_stride: int
    """Bytes from panel to panel."""
    scales: int
    biases: int
    scales_stride: int
    group_shift: int
    """A group is 2 ** group_shift steps."""
    centre: int
    """The logarithm of the power of two at which codes are centred."""
    kind: int
    """In `AFFINE_KINDS`."""

    def chosen(self) -> Kernel:
        """That of the kind of matrix."""
        return AFFINE_KERNELS[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatLinear(Product):
    """Weights as floats `[panels, columns, 16]`."""

    x: int
    x_stride: int
    columns: int
    weight: int
    weight_stride: int
    """Bytes from panel to panel."""
    kind: int
    """In `FLOAT_KINDS`."""

    def chosen(self) -> Kernel:
        """That of the kind of matrix."""
        return FLOAT_KERNELS[self.kind]


(_ROWS, _ROWS_AN_ITEM, _PANELS, _PANELS_AN_ITEM, _OUTPUTS, _BIAS, _RESIDUAL, _RESIDUAL_STRIDE, _OUT, _OUT_STRIDE) = (
    numbers(Product)
)
(_TARGET, _STEPS, _CODES, _CODES_STRIDE, _SCALES, _BIASES, _SCALES_STRIDE, _GROUP_SHIFT, _CENTRE, _) = numbers(
    AffineLinear
)[len(numbers(Product)) :]
(_X, _X_STRIDE, _COLUMNS, _WEIGHT, _WEIGHT_STRIDE, _) = numbers(FloatLinear)[len(numbers(Product)) :]


@kernel
def finish(call: int, panel: int, row: int, count: int, tile: int) -> None:
    """Bias and residual are added to a tile's sums `[count, 16]`, and the result goes to its place."""
    bias, residual, out = field(call, _BIAS), field(call, _RESIDUAL), field(call, _OUT)
    left = min(16, field(call, _OUTPUTS) - 16 * panel)
    for number in range(count):
        value = load(tile + 64 * number)
        if bias:
            value = add(value, load(bias + 64 * panel))
        place = (row + number) * field(call, _OUT_STRIDE) + 64 * panel
        before = residual + (row + number) * field(call, _RESIDUAL_STRIDE) + 64 * panel
        if left == 16:
            store(out + place, add(value, load(before)) if residual else value)
        else:
            store_first(out + place, add(value, load_first(before, left)) if residual else value, left)


def affine_rows(kind: int, call: int, panel: int, first: int, last: int, tile: int) -> None:
    """One panel of a matrix of this kind for rows `first` to `last`; for kernels, with a constant kind."""
    raise NotImplementedError


@overload(affine_rows, prefer_literal=True)
def _affine_rows(kind: Any, call: Any, panel: Any, first: Any, last: Any, tile: Any) -> Any:
    if not isinstance(kind, types.IntegerLiteral):
        return None
    chosen = AFFINE_KINDS[kind.literal_value]
    stored: Stored = "f32" if chosen.wide else "f16"
    tiles = {rows: affine_tile(rows, chosen.bits, chosen.step, stored, biased=chosen.biased) for rows in AFFINE_ROWS}
    most = AFFINE_ROWS[0]
    by_most, by_four, by_two, by_one = tiles[most], tiles[4], tiles[2], tiles[1]

    def rows_of_panel(kind: Any, call: Any, panel: Any, first: Any, last: Any, tile: Any) -> Any:
        target = field(call, _TARGET)
        codes = field(call, _CODES) + panel * field(call, _CODES_STRIDE)
        scales = field(call, _SCALES) + panel * field(call, _SCALES_STRIDE)
        biases = field(call, _BIASES) + panel * field(call, _SCALES_STRIDE)
        shift, centre, steps = field(call, _GROUP_SHIFT), field(call, _CENTRE), field(call, _STEPS)
        wide, narrow = field(target, 4), field(target, 5)
        row = first
        while row < last:
            x = field(target, 0) + row * wide
            place = row * narrow
            sums, factors, offsets = field(target, 1) + place, field(target, 2) + place, field(target, 3) + place
            left = last - row
            if left >= most:
                count = most
                by_most(codes, scales, biases, shift, centre, steps, x, wide, sums, factors, offsets, narrow, tile, 64)
            elif left >= 4:
                count = 4
                by_four(codes, scales, biases, shift, centre, steps, x, wide, sums, factors, offsets, narrow, tile, 64)
            elif left >= 2:
                count = 2
                by_two(codes, scales, biases, shift, centre, steps, x, wide, sums, factors, offsets, narrow, tile, 64)
            else:
                count = 1
                by_one(codes, scales, biases, shift, centre, steps, x, wide, sums, factors, offsets, narrow, tile, 64)
            finish(call, panel, row, count, tile)
            row += count

    return rows_of_panel


def float_rows(kind: int, call: int, panel: int, first: int, last: int, tile: int) -> None:
    """The same for weights that are floats."""
    raise NotImplementedError


@overload(float_rows, prefer_literal=True)
def _float_rows(kind: Any, call: Any, panel: Any, first: Any, last: Any, tile: Any) -> Any:
    if not isinstance(kind, types.IntegerLiteral):
        return None
    stored = FLOAT_KINDS[kind.literal_value]
    by_four, by_three, by_two, by_one = (float_tile(rows, 1, stored, fresh=True) for rows in FLOAT_ROWS)
    width = 64 if stored == "f32" else 32

    def rows_of_panel(kind: Any, call: Any, panel: Any, first: Any, last: Any, tile: Any) -> Any:
        weight = field(call, _WEIGHT) + panel * field(call, _WEIGHT_STRIDE)
        x_stride, columns = field(call, _X_STRIDE), field(call, _COLUMNS)
        row = first
        while row < last:
            x = field(call, _X) + row * x_stride
            count = min(4, last - row)
            if count == 4:
                by_four(x, x_stride, weight, width, columns, tile, 64)
            elif count == 3:
                by_three(x, x_stride, weight, width, columns, tile, 64)
            elif count == 2:
                by_two(x, x_stride, weight, width, columns, tile, 64)
            else:
                by_one(x, x_stride, weight, width, columns, tile, 64)
            finish(call, panel, row, count, tile)
            row += count

    return rows_of_panel


@kernel
def _bounds(call: int, item: int) -> tuple[int, int, int, int]:
    """First and last panel and row of an item; items of the same panels follow each other."""
    rows, an_item = field(call, _ROWS), field(call, _ROWS_AN_ITEM)
    runs = (rows + an_item - 1) // an_item
    panels = field(call, _PANELS_AN_ITEM)
    first, row = item // runs * panels, item % runs * an_item
    return first, min(field(call, _PANELS), first + panels), row, min(rows, row + an_item)


@Kernel
def _affine_4_32_half_centred(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        affine_rows(0, call, panel, row, end, scratch)


@Kernel
def _affine_4_32_half_biased(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        affine_rows(1, call, panel, row, end, scratch)


@Kernel
def _affine_4_32_float_centred(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        affine_rows(2, call, panel, row, end, scratch)


@Kernel
def _affine_4_32_float_biased(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        affine_rows(3, call, panel, row, end, scratch)


@Kernel
def _affine_4_16_half_centred(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        affine_rows(4, call, panel, row, end, scratch)


@Kernel
def _affine_4_16_half_biased(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        affine_rows(5, call, panel, row, end, scratch)


@Kernel
def _affine_4_16_float_centred(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        affine_rows(6, call, panel, row, end, scratch)


@Kernel
def _affine_4_16_float_biased(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        affine_rows(7, call, panel, row, end, scratch)


@Kernel
def _affine_8_32_half_centred(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        affine_rows(8, call, panel, row, end, scratch)


@Kernel
def _affine_8_32_half_biased(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        affine_rows(9, call, panel, row, end, scratch)


@Kernel
def _affine_8_32_float_centred(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        affine_rows(10, call, panel, row, end, scratch)


@Kernel
def _affine_8_32_float_biased(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        affine_rows(11, call, panel, row, end, scratch)


@Kernel
def _affine_8_16_half_centred(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        affine_rows(12, call, panel, row, end, scratch)


@Kernel
def _affine_8_16_half_biased(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        affine_rows(13, call, panel, row, end, scratch)


@Kernel
def _affine_8_16_float_centred(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        affine_rows(14, call, panel, row, end, scratch)


@Kernel
def _affine_8_16_float_biased(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        affine_rows(15, call, panel, row, end, scratch)


@Kernel
def _float_f32(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        float_rows(0, call, panel, row, end, scratch)


@Kernel
def _float_f16(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        float_rows(1, call, panel, row, end, scratch)


@Kernel
def _float_bf16(call: int, item: int, scratch: int) -> None:
    first, last, row, end = _bounds(call, item)
    for panel in range(first, last):
        float_rows(2, call, panel, row, end, scratch)


AFFINE_KERNELS: Final = (
    _affine_4_32_half_centred,
    _affine_4_32_half_biased,
    _affine_4_32_float_centred,
    _affine_4_32_float_biased,
    _affine_4_16_half_centred,
    _affine_4_16_half_biased,
    _affine_4_16_float_centred,
    _affine_4_16_float_biased,
    _affine_8_32_half_centred,
    _affine_8_32_half_biased,
    _affine_8_32_float_centred,
    _affine_8_32_float_biased,
    _affine_8_16_half_centred,
    _affine_8_16_half_biased,
    _affine_8_16_float_centred,
    _affine_8_16_float_biased,
)
"""In the order of `AFFINE_KINDS`."""
FLOAT_KERNELS: Final = (_float_f32, _float_f16, _float_bf16)
"""In the order of `FLOAT_KINDS`."""

"""Root mean square normalization of rows, as floats, as integers, or both; or gated, as floats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensorfold_backend_cpu.kernels.calls import Call, done_by, numbers
from tensorfold_backend_cpu.kernels.compiling import kernel, real
from tensorfold_backend_cpu.kernels.elementwise import activated
from tensorfold_backend_cpu.kernels.lanes import put, some
from tensorfold_backend_cpu.kernels.quantized import quantize_columns
from tensorfold_backend_cpu.kernels.simd import (
    field,
    fma,
    load,
    load_first,
    multiply,
    real_field,
    splat,
    store,
    store_first,
    sum_lanes,
)

__all__ = ["GatedNorm", "RmsNorm", "gated_norm", "normalize", "rms_norm"]


@kernel
def normalize(x: int, weight: int, columns: int, eps: float, out: int) -> None:
    """One row: x / sqrt(mean(x^2) + eps), times the weight unless its address is 0. `out` may be `x`."""
    whole = columns - columns % 16
    squares = splat(real(0.0))
    for start in range(0, whole, 16):
        value = load(x + 4 * start)
        squares = fma(value, value, squares)
    if whole < columns:
        value = load_first(x + 4 * whole, columns - whole)
        squares = fma(value, value, squares)
    factor = splat(real(1.0) / np.sqrt(sum_lanes(squares) / real(columns) + real(eps)))
    for start in range(0, whole, 16):
        value = multiply(load(x + 4 * start), factor)
        store(out + 4 * start, multiply(value, load(weight + 4 * start)) if weight else value)
    if whole < columns:
        left = columns - whole
        value = multiply(load_first(x + 4 * whole, left), factor)
        store_first(out + 4 * whole, multiply(value, load_first(weight + 4 * whole, left)) if weight else value, left)


@dataclass(frozen=True, slots=True, kw_only=True)
class RmsNorm(Call):
    """An item is a row."""

    x: int
    x_stride: int
    """Bytes from row to row."""
    columns: int
    weight: int
    """`[weights, columns]` floats, or 0."""
    weights: int
    """Row r has weight r modulo this."""
    eps: float
    out: int
    """Where the floats go; 0: nowhere."""
    out_stride: int
    step: int
    """Of the integers."""
    padded: int
    target: int
    """Where the integers go, as in `quantize_columns`; 0: nowhere."""


(_X, _X_STRIDE, _COLUMNS, _WEIGHT, _WEIGHTS, _EPS, _OUT, _OUT_STRIDE, _STEP, _PADDED, _TARGET) = numbers(RmsNorm)


@done_by(RmsNorm)
def rms_norm(call: int, row: int, scratch: int) -> None:
    """One item of `RmsNorm`."""
    columns, weight, target = field(call, _COLUMNS), field(call, _WEIGHT), field(call, _TARGET)
    if weight:
        weight += 4 * columns * (row % field(call, _WEIGHTS))
    out = field(call, _OUT)
    place = out + row * field(call, _OUT_STRIDE) if out else scratch
    normalize(field(call, _X) + row * field(call, _X_STRIDE), weight, columns, real_field(call, _EPS), place)
    if target:
        quantize_columns(place, columns, field(call, _STEP), 0, field(call, _PADDED), target, row)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedNorm(Call):
    """norm(x * act(gate)) or norm(x) * act(gate); an item is a group of a row."""

    x: int
    x_stride: int
    """Bytes from row to row, whose groups follow each other."""
    gate: int
    gate_stride: int
    groups: int
    columns: int
    """Of a group."""
    weight: int
    """`[weights, columns]` floats."""
    weights: int
    """Group g has weight g modulo this."""
    eps: float
    act: int
    gate_first: int
    out: int
    """`[R, groups, columns]`."""


(_GX, _GX_STRIDE, _GATE, _GATE_STRIDE, _GROUPS, _WIDTH, _GWEIGHT, _GWEIGHTS, _GEPS, _ACT, _GATE_FIRST, _GOUT) = numbers(
    GatedNorm
)


@kernel
def gated(x: int, gate: int, columns: int, act: int, out: int) -> None:
    """x * act(gate). `out` may be `x`."""
    for start in range(0, columns, 16):
        left = columns - start
        opened = activated(some(gate + 4 * start, left), act)
        put(out + 4 * start, multiply(some(x + 4 * start, left), opened), left)


@done_by(GatedNorm)
def gated_norm(call: int, item: int, scratch: int) -> None:
    """One item of `GatedNorm`."""
    groups, columns, act = field(call, _GROUPS), field(call, _WIDTH), field(call, _ACT)
    row, place = item // groups, 4 * columns * (item % groups)
    x = field(call, _GX) + row * field(call, _GX_STRIDE) + place
    gate = field(call, _GATE) + row * field(call, _GATE_STRIDE) + place
    weight = field(call, _GWEIGHT) + 4 * columns * (item % field(call, _GWEIGHTS))
    out, eps = field(call, _GOUT) + 4 * columns * item, real_field(call, _GEPS)
    if field(call, _GATE_FIRST):
        gated(x, gate, columns, act, out)
        normalize(out, weight, columns, eps, out)
    else:
        normalize(x, weight, columns, eps, out)
        gated(out, gate, columns, act, out)

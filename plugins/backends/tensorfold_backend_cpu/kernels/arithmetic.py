"""Sums and products of rows with rows, vectors or numbers, weighted sums, and functions of every element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorfold_backend_cpu.kernels.calls import Call, done_by, numbers
from tensorfold_backend_cpu.kernels.compiling import kernel, real
from tensorfold_backend_cpu.kernels.elementwise import RUN
from tensorfold_backend_cpu.kernels.emitter import Vector
from tensorfold_backend_cpu.kernels.lanes import put, some
from tensorfold_backend_cpu.kernels.simd import (
    add,
    divide,
    exp,
    field,
    fma,
    load_float,
    maximum,
    minimum,
    multiply,
    real_field,
    splat,
    subtract,
    tanh,
)

__all__ = ["FUNCTIONS", "Apply", "Combine", "Mix", "apply", "combine", "mix"]

FUNCTIONS: Final = ("exp", "softplus", "tanh", "softcap", "maximum")
"""In the order of their numbers inside calls. The last two have a parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combine(Call):
    """a + b or a * b, b repeated along both axes; an item is a row."""

    a: int
    a_stride: int
    """Bytes from row to row."""
    b: int
    b_stride: int
    b_rows: int
    """Row r meets row r modulo this."""
    single: int
    """1: a row of b is one number for all columns."""
    columns: int
    product: int
    """1: a * b."""
    out: int
    out_stride: int


(_A, _A_STRIDE, _B, _B_STRIDE, _B_ROWS, _SINGLE, _COLUMNS, _PRODUCT, _OUT, _OUT_STRIDE) = numbers(Combine)


@done_by(Combine)
def combine(call: int, row: int, scratch: int) -> None:
    """One item of `Combine`."""
    columns, single, product = field(call, _COLUMNS), field(call, _SINGLE), field(call, _PRODUCT)
    a = field(call, _A) + row * field(call, _A_STRIDE)
    b = field(call, _B) + row % field(call, _B_ROWS) * field(call, _B_STRIDE)
    out = field(call, _OUT) + row * field(call, _OUT_STRIDE)
    number = splat(load_float(b))
    for start in range(0, columns, 16):
        left = columns - start
        x = some(a + 4 * start, left)
        y = number if single else some(b + 4 * start, left)
        put(out + 4 * start, multiply(x, y) if product else add(x, y), left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix(Call):
    """Weighted sums of the parts of a row; an item is one sum."""

    x: int
    """`[R, parts, columns]`."""
    weights: int
    """`[R, parts, sums]`."""
    parts: int
    sums: int
    columns: int
    out: int
    """`[R, sums, columns]`."""


(_MIX_X, _WEIGHTS, _PARTS, _SUMS, _MIX_COLUMNS, _MIX_OUT) = numbers(Mix)


@done_by(Mix)
def mix(call: int, item: int, scratch: int) -> None:
    """One item of `Mix`."""
    parts, sums, columns = field(call, _PARTS), field(call, _SUMS), field(call, _MIX_COLUMNS)
    row, place = item // sums, item % sums
    x = field(call, _MIX_X) + 4 * columns * parts * row
    weights = field(call, _WEIGHTS) + 4 * (sums * parts * row + place)
    out = field(call, _MIX_OUT) + 4 * columns * item
    for start in range(0, columns, 16):
        left = columns - start
        total = splat(real(0.0))
        for part in range(parts):
            value = some(x + 4 * (columns * part + start), left)
            total = fma(splat(load_float(weights + 4 * sums * part)), value, total)
        put(out + 4 * start, total, left)


@kernel
def softplus(x: Vector) -> Vector:
    """max(x, 0) + log(1 + y), y = exp(-|x|): the logarithm is 2 artanh(y / (2 + y)), whose series ends below a bit."""
    y = exp(minimum(x, subtract(splat(real(0.0)), x)))
    z = divide(y, add(y, splat(real(2.0))))
    square = multiply(z, z)
    series = splat(real(1.0 / 15.0))
    for part in range(6, 0, -1):
        series = fma(series, square, splat(real(1.0) / real(2 * part + 1)))
    series = fma(series, square, splat(real(1.0)))
    return fma(add(z, z), series, maximum(splat(real(0.0)), x))


@kernel
def applied(x: Vector, function: int, parameter: float) -> Vector:
    """By the number of the function in `FUNCTIONS`."""
    if function == 0:
        return exp(x)
    if function == 1:
        return softplus(x)
    if function == 2:
        return tanh(x)
    if function == 3:
        return multiply(tanh(divide(x, splat(parameter))), splat(parameter))
    return maximum(splat(parameter), x)


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply(Call):
    """Flat: an item is `RUN` elements."""

    x: int
    count: int
    function: int
    parameter: float
    out: int


(_APPLY_X, _APPLY_COUNT, _FUNCTION, _PARAMETER, _APPLY_OUT) = numbers(Apply)


@done_by(Apply)
def apply(call: int, item: int, scratch: int) -> None:
    """One item of `Apply`."""
    x, out, function = field(call, _APPLY_X), field(call, _APPLY_OUT), field(call, _FUNCTION)
    parameter = real_field(call, _PARAMETER)
    first = item * RUN
    last = min(field(call, _APPLY_COUNT), first + RUN)
    for start in range(first, last, 16):
        left = last - start
        put(out + 4 * start, applied(some(x + 4 * start, left), function, parameter), left)

"""Activations, gated units, sums, and rows moved about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorfold_backend_cpu.kernels.calls import Call, done_by, numbers
from tensorfold_backend_cpu.kernels.compiling import kernel
from tensorfold_backend_cpu.kernels.emitter import Vector
from tensorfold_backend_cpu.kernels.quantized import BLOCK, quantize_columns
from tensorfold_backend_cpu.kernels.simd import (
    add,
    field,
    gelu,
    load,
    load_first,
    load_int,
    maximum,
    minimum,
    multiply,
    real_field,
    relu2,
    sigmoid,
    silu,
    splat,
    store,
    store_first,
)

__all__ = ["RUN", "Activate", "Add", "Gather", "Glu", "Scale", "activate", "add_rows", "gather", "glu", "scale_rows"]

RUN: Final = 4096
"""Elements of one item of a flat operation."""


@kernel
def activated(x: Vector, act: int) -> Vector:
    """By the number of the activation in `simd.ACTIVATIONS`."""
    if act == 0:
        return silu(x)
    if act == 1:
        return gelu(x)
    if act == 2:
        return relu2(x)
    return sigmoid(x)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activate(Call):
    """Flat: an item is `RUN` elements."""

    x: int
    count: int
    act: int
    out: int


(_ACTIVATE_X, _ACTIVATE_COUNT, _ACTIVATE_ACT, _ACTIVATE_OUT) = numbers(Activate)


@done_by(Activate)
def activate(call: int, item: int, scratch: int) -> None:
    """One item of `Activate`."""
    x, out, act = field(call, _ACTIVATE_X), field(call, _ACTIVATE_OUT), field(call, _ACTIVATE_ACT)
    first = item * RUN
    last = min(field(call, _ACTIVATE_COUNT), first + RUN)
    for start in range(first, last, 16):
        left = last - start
        if left >= 16:
            store(out + 4 * start, activated(load(x + 4 * start), act))
        else:
            store_first(out + 4 * start, activated(load_first(x + 4 * start, left), act), left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Add(Call):
    """Flat: a + b; an item is `RUN` elements."""

    a: int
    b: int
    count: int
    out: int


(_ADD_A, _ADD_B, _ADD_COUNT, _ADD_OUT) = numbers(Add)


@done_by(Add)
def add_rows(call: int, item: int, scratch: int) -> None:
    """One item of `Add`."""
    a, b, out = field(call, _ADD_A), field(call, _ADD_B), field(call, _ADD_OUT)
    first = item * RUN
    last = min(field(call, _ADD_COUNT), first + RUN)
    for start in range(first, last, 16):
        left = last - start
        if left >= 16:
            store(out + 4 * start, add(load(a + 4 * start), load(b + 4 * start)))
        else:
            store_first(out + 4 * start, add(load_first(a + 4 * start, left), load_first(b + 4 * start, left)), left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(Call):
    """Flat: x times a number; an item is `RUN` elements."""

    x: int
    count: int
    factor: float
    out: int


(_SCALE_X, _SCALE_COUNT, _SCALE_FACTOR, _SCALE_OUT) = numbers(Scale)


@done_by(Scale)
def scale_rows(call: int, item: int, scratch: int) -> None:
    """One item of `Scale`."""
    x, out, factor = field(call, _SCALE_X), field(call, _SCALE_OUT), splat(real_field(call, _SCALE_FACTOR))
    first = item * RUN
    last = min(field(call, _SCALE_COUNT), first + RUN)
    for start in range(first, last, 16):
        left = last - start
        if left >= 16:
            store(out + 4 * start, multiply(load(x + 4 * start), factor))
        else:
            store_first(out + 4 * start, multiply(load_first(x + 4 * start, left), factor), left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Glu(Call):
    """act(gate) * up, as floats, as integers, or both; an item is `BLOCK` columns of a row."""

    x: int
    """Rows of gate, then up."""
    x_stride: int
    columns: int
    """Of gate, of up and of the result."""
    act: int
    limited: int
    limit: float
    """Cuts gate above, and up on both sides, when `limited` is 1."""
    out: int
    """Where the floats go; 0: nowhere."""
    out_stride: int
    step: int
    padded: int
    target: int
    """Where the integers go, as in `quantize_columns`; 0: nowhere."""


(_X, _X_STRIDE, _COLUMNS, _ACT, _LIMITED, _LIMIT, _OUT, _OUT_STRIDE, _STEP, _PADDED, _TARGET) = numbers(Glu)


@done_by(Glu)
def glu(call: int, item: int, scratch: int) -> None:
    """One item of `Glu`."""
    columns, act = field(call, _COLUMNS), field(call, _ACT)
    padded = max(columns, field(call, _PADDED))
    blocks = (padded + BLOCK - 1) // BLOCK
    row, first = item // blocks, item % blocks * BLOCK
    last = min(columns, first + BLOCK)
    gate = field(call, _X) + row * field(call, _X_STRIDE)
    up = gate + 4 * columns
    out, target = field(call, _OUT), field(call, _TARGET)
    # Scratch stands for the block alone, and is addressed as if it were the row.
    place = out + row * field(call, _OUT_STRIDE) if out else scratch - 4 * first
    limited, limit = field(call, _LIMITED), real_field(call, _LIMIT)
    for start in range(first, last, 16):
        left = last - start
        if left >= 16:
            opening, passing = load(gate + 4 * start), load(up + 4 * start)
        else:
            opening, passing = load_first(gate + 4 * start, left), load_first(up + 4 * start, left)
        if limited:
            opening = minimum(splat(limit), opening)
            passing = maximum(splat(-limit), minimum(splat(limit), passing))
        value = multiply(activated(opening, act), passing)
        if left >= 16:
            store(place + 4 * start, value)
        else:
            store_first(place + 4 * start, value, left)
    if target:
        quantize_columns(place, columns, field(call, _STEP), first, min(padded, first + BLOCK), target, row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gather(Call):
    """Rows of floats, copied; an item is a row."""

    x: int
    x_stride: int
    index: int
    """32-bit numbers of the rows to take; 0: in order."""
    columns: int
    out: int
    out_stride: int


(_G_X, _G_X_STRIDE, _G_INDEX, _G_COLUMNS, _G_OUT, _G_OUT_STRIDE) = numbers(Gather)


@done_by(Gather)
def gather(call: int, row: int, scratch: int) -> None:
    """One item of `Gather`."""
    index, columns = field(call, _G_INDEX), field(call, _G_COLUMNS)
    taken = load_int(index + 4 * row) if index else row
    x, out = (
        field(call, _G_X) + taken * field(call, _G_X_STRIDE),
        field(call, _G_OUT) + row * field(call, _G_OUT_STRIDE),
    )
    for start in range(0, columns, 16):
        left = columns - start
        if left >= 16:
            store(out + 4 * start, load(x + 4 * start))
        else:
            store_first(out + 4 * start, load_first(x + 4 * start, left), left)

"""The results of spans to the outputs of attention."""

from __future__ import annotations

from dataclasses import dataclass

from tensorfold_backend_cpu.kernels.calls import Call, done_by, numbers
from tensorfold_backend_cpu.kernels.quantized import quantize_columns
from tensorfold_backend_cpu.kernels.simd import (
    divide,
    exp_of,
    field,
    load,
    load_float,
    load_int,
    multiply,
    splat,
    store,
    store_first,
)
from tensorfold_backend_cpu.kernels.softmax import clear, joined

__all__ = ["Join"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Call):
    """Spans to outputs, as floats, as integers, or both; an item is a row."""

    partial: int
    """As in `Attend`, and so `spans`."""
    spans: int
    ranges: int
    """Address of the word that holds the address of two 32-bit numbers a row: its first span and how many it has."""
    heads: int
    v_width: int
    v_line: int
    sinks: int
    """A logit for each head that takes weight and gives no value; 0: none."""
    out: int
    """Where the floats go; 0: nowhere."""
    out_stride: int
    step: int
    padded: int
    target: int
    """Where the integers go, as in `quantize_columns`; 0: nowhere."""


(
    _J_PARTIAL,
    _J_SPANS,
    _J_RANGES,
    _J_HEADS,
    _V_WIDTH,
    _J_V_LINE,
    _SINKS,
    _OUT,
    _OUT_STRIDE,
    _STEP,
    _PADDED,
    _TARGET,
) = numbers(Join)


@done_by(Join)
def join(call: int, row: int, scratch: int) -> None:
    """One item of `Join`."""
    heads, v_width, v_line = field(call, _J_HEADS), field(call, _V_WIDTH), field(call, _J_V_LINE)
    line = 4 * (v_line + 16)
    start = field(field(call, _J_PARTIAL), 0) + line * heads * row * field(field(call, _J_SPANS), 0)
    ranges = field(field(call, _J_RANGES), 0) + 8 * row
    first, count = load_int(ranges), load_int(ranges + 4)
    out, target = field(call, _OUT), field(call, _TARGET)
    sums, state = scratch, scratch + 4 * v_line
    place = out + row * field(call, _OUT_STRIDE) if out else scratch + 4 * (v_line + 16)
    for head in range(heads):
        clear(state, sums, 1, v_line)
        for span in range(first, first + count):
            other = start + line * (span * heads + head)
            joined(state, sums, other + 4 * v_line, other, v_line)
        total = load_float(state + 4)
        if field(call, _SINKS):
            sink = load_float(field(call, _SINKS) + 4 * head)
            highest = max(load_float(state), sink)
            kept = exp_of(load_float(state) - highest)
            total = total * kept + exp_of(sink - highest)
            for column in range(0, v_line, 16):
                store(sums + 4 * column, multiply(load(sums + 4 * column), splat(kept)))
        for column in range(0, v_width, 16):
            value = divide(load(sums + 4 * column), splat(total))
            store_first(place + 4 * (head * v_width + column), value, min(16, v_width - column))
    if target:
        quantize_columns(place, heads * v_width, field(call, _STEP), 0, field(call, _PADDED), target, row)

"""The two products that everything heavy is made of, for a few rows at a time.

`affine_tile`: quantized weights times 8-bit activations. `float_tile`: floats times floats. In both, a lane is a column
of the output, and what it sums up it adds in the order of the inner axis, so neither the number of rows in a tile nor the
width of the processor's registers changes a bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from numba import types

from tensorfold_backend_cpu.kernels.dots import accumulate, load_codes
from tensorfold_backend_cpu.kernels.emitter import F32, I16, I32, LANES, V32, VF, VH, Emitter, operation
from tensorfold_backend_cpu.kernels.levels import LEVEL
from tensorfold_backend_cpu.kernels.untyped import ir

__all__ = ["AFFINE_ROWS", "FLOAT_COLUMNS", "FLOAT_ROWS", "affine_tile", "float_tile"]

AFFINE_ROWS: Final = (8, 4, 2, 1) if LEVEL == "avx512vnni" else (4, 2, 1)
"""Rows that a tile may have: as many as the registers hold."""
FLOAT_ROWS: Final = (4, 3, 2, 1)
FLOAT_COLUMNS: Final = 4 if LEVEL == "avx512vnni" else 1
"""Vectors of 16 columns in a wide tile of floats."""

_AHEAD: Final = 4096
"""Bytes of codes that are asked for before they are needed."""

Stored = Literal["f32", "f16", "bf16"]


def _load_floats(e: Emitter, stored: Stored, address: Any) -> Any:
    """Sixteen floats, widened."""
    match stored:
        case "f32":
            return e.load(VF, address)
        case "f16":
            return e.builder.fpext(e.load(VH, address), VF)
        case "bf16":
            bits = e.builder.zext(e.load(ir.VectorType(I16, LANES), address), V32)
            return e.builder.bitcast(e.builder.shl(bits, e.constant(V32, 16)), VF)


class _Operands(NamedTuple):
    """What `affine_tile` says."""

    codes: Any
    scales: Any
    biases: Any
    group_shift: Any
    centre: Any
    steps: Any
    x: Any
    x_stride: Any
    sums: Any
    factors: Any
    offsets: Any
    s_stride: Any
    out: Any
    out_stride: Any


@dataclass(frozen=True, slots=True)
class _Affine:
    """What is told apart when the kernel is made."""

    rows: int
    bits: int
    step: int
    """Columns between two conversions to float: 16 or 32."""
    scales: Stored
    biased: bool
    """Whether groups have biases of their own; else codes are centred at a power of two."""

    def emit(self, e: Emitter, at: _Operands) -> None:
        """All rows of a tile, step by step."""
        width = 2 if self.scales == "f16" else 4
        totals = [e.variable(e.constant(VF, 0.0)) for _ in range(self.rows)]
        shift = e.splat(e.builder.trunc(at.centre, I32))
        size = 2 * self.bits * self.step
        with e.loop(at.steps) as step:
            codes_at = e.at(at.codes, step, size)
            for line in range(0, size, 64):
                e.prefetch(e.at(codes_at, _AHEAD + line))
            codes = load_codes(e, codes_at, self.bits, self.step // 4)
            group = e.at(e.i64(0), e.builder.lshr(step, at.group_shift), LANES * width)
            for values in (at.scales, at.biases) if self.biased else (at.scales,):
                e.prefetch(e.at(e.builder.add(values, group), _AHEAD // 8))
            scale = _load_floats(e, self.scales, e.builder.add(at.scales, group))
            bias = _load_floats(e, self.scales, e.builder.add(at.biases, group)) if self.biased else None
            for row, total in enumerate(totals):
                columns = e.at(e.at(at.x, at.x_stride, row), step, self.step)
                chunks = [e.load(I32, e.at(columns, start)) for start in range(0, self.step, 4)]
                place = e.at(e.at(e.i64(0), at.s_stride, row), step, 4)
                negative = e.splat(e.load(I32, e.builder.add(at.sums, place)))
                start = e.constant(V32, 0) if self.biased else e.builder.shl(negative, shift)
                product = e.builder.sitofp(accumulate(e, codes, chunks, start, negative, self.bits), VF)
                factor = e.splat(e.load(F32, e.builder.add(at.factors, place)))
                value = e.fma(product, e.builder.fmul(scale, factor), e.builder.load(total))
                if bias is not None:
                    value = e.fma(bias, e.splat(e.load(F32, e.builder.add(at.offsets, place))), value)
                e.builder.store(value, total)
        for row, total in enumerate(totals):
            e.store(e.builder.load(total), e.at(at.out, at.out_stride, row))


def affine_tile(rows: int, bits: int, step: int, scales: Stored, *, biased: bool) -> Any:
    """`f(codes, scales, biases, group_shift, centre, steps, x, x_stride, sums, factors, offsets, s_stride, out,
    out_stride)`: 16 outputs of each of `rows` rows.

    All are 64-bit: addresses, strides in bytes, and numbers. Of one panel of 16 output rows: `codes` as `dots` lays
    them out; `scales` and `biases` `[groups, 16]`, a group being 2 ** `group_shift` steps; codes are centred at 2 **
    `centre`. Of the activations, `[rows, ...]` each: `x` bytes; for each step minus their sum in `sums`, their scale in
    `factors`, and the sum times the scale in `offsets`. Writes `out` `[rows, 16]` floats.
    """
    kind = _Affine(rows, bits, step, scales, biased)

    @operation(types.void, *[types.int64] * 14)
    def emit(e: Emitter, *values: Any) -> None:
        kind.emit(e, _Operands(*values))

    return emit


def float_tile(rows: int, vectors: int, stored: Stored, *, fresh: bool) -> Any:
    """`f(a, a_stride, b, b_stride, count, out, out_stride)`: `out [rows, 16 * vectors]` (+)= `a [rows, count]` times
    `b [count, 16 * vectors]`.

    All are 64-bit: addresses, strides in bytes, and the count. `b` is stored as it is said; `fresh` begins at zero
    instead of what `out` holds.
    """

    @operation(types.void, *[types.int64] * 7)
    def emit(e: Emitter, a: Any, a_stride: Any, b: Any, b_stride: Any, count: Any, out: Any, out_stride: Any) -> None:
        width = LANES * (4 if stored == "f32" else 2)
        places = [
            [e.at(e.at(out, out_stride, row), 4 * LANES * vector) for vector in range(vectors)] for row in range(rows)
        ]
        totals = [
            [e.variable(e.constant(VF, 0.0) if fresh else e.load(VF, place)) for place in line] for line in places
        ]
        with e.loop(count) as index:
            line = e.builder.add(b, e.builder.mul(index, b_stride))
            columns = [_load_floats(e, stored, e.at(line, width * vector)) for vector in range(vectors)]
            for row in range(rows):
                factor = e.splat(e.load(F32, e.at(e.at(a, a_stride, row), index, 4)))
                for vector in range(vectors):
                    total = totals[row][vector]
                    e.builder.store(e.fma(factor, columns[vector], e.builder.load(total)), total)
        for row in range(rows):
            for vector in range(vectors):
                e.store(e.builder.load(totals[row][vector]), places[row][vector])

    return emit

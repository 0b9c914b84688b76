"""Which tokens may win a draw without filters: the few whose logit over the temperature plus noise can be the largest.

The noise is minus the logarithm of minus the logarithm of a uniform number u, and that is at most minus the logarithm of
1 - u, whose exponent and mantissa bound it from above without a logarithm. A token whose bound is less than some token's
value cannot win. Who does is decided elsewhere, by the shared rule; this only spares it the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from numba import types

from tensorfold_backend_cpu.kernels.calls import Call, done_by, numbers
from tensorfold_backend_cpu.kernels.compiling import kernel, real
from tensorfold_backend_cpu.kernels.emitter import I64, LANES, VF, Emitter, Vector, operation, vector_type
from tensorfold_backend_cpu.kernels.simd import (
    add,
    between,
    field,
    fma,
    largest_lane,
    load,
    load_first,
    load_float,
    maximum,
    multiply,
    real_field,
    splat,
    store,
    store_int,
    sum_lanes,
)
from tensorfold_backend_cpu.kernels.untyped import ir

__all__ = ["GOLDEN", "MOST", "Contend"]

GOLDEN: Final = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Of splitmix64, as in `tensorfold.compute.sampling`."""
MOST: Final = 512
"""Tokens that are told; a row with more is drawn from in full."""
_SLACK: Final = 1e-3
"""By which a bound may be off for being computed in single precision."""

_VI = ir.VectorType(I64, LANES)
_VD = ir.VectorType(ir.DoubleType(), LANES)


def _signed(value: int) -> int:
    """The 64 bits as a signed integer."""
    return value - (1 << 64) if value >> 63 else value


def _words(e: Emitter, first: Any, stream: Any) -> Any:
    """The hashes of tokens `first` to `first + 15`."""
    ids = e.builder.add(e.splat(first), ir.Constant(_VI, list(range(1, LANES + 1))))
    word = e.builder.add(e.splat(stream), e.builder.mul(ids, e.constant(_VI, _signed(GOLDEN))))
    for shift, factor in ((30, _FIRST), (27, _SECOND), (31, 1)):
        word = e.builder.xor(word, e.builder.lshr(word, e.constant(_VI, shift)))
        if factor != 1:
            word = e.builder.mul(word, e.constant(_VI, _signed(factor)))
    return word


@operation(vector_type, types.int64, types.int64)
def _noise_bounds(e: Emitter, first: Any, stream: Any) -> Any:
    """Upper bounds of the noise of 16 tokens."""
    word = e.builder.lshr(_words(e, first, stream), e.constant(_VI, 11))
    left = e.builder.sub(e.constant(_VI, (1 << 53) - 1), word)
    # 1 - u, times 2**53. The bits of a double are, over 2**52, at most its logarithm to base 2, plus 1023.
    rest = e.builder.fadd(e.builder.sitofp(left, _VD), e.constant(_VD, 0.5))
    logarithm = e.builder.fmul(e.builder.sitofp(e.builder.bitcast(rest, _VI), _VD), e.constant(_VD, 2.0**-52))
    bound = e.builder.fmul(e.builder.fsub(e.constant(_VD, 1023.0 + 53.0), logarithm), e.constant(_VD, math.log(2.0)))
    return e.builder.fadd(e.builder.fptrunc(bound, VF), e.constant(VF, _SLACK))


@operation(types.float64, types.int64, types.int64)
def _uniform(e: Emitter, token: Any, stream: Any) -> Any:
    """The uniform number of one token."""
    word = e.builder.extract_element(_words(e, token, stream), ir.Constant(ir.IntType(32), 0))
    whole = e.builder.uitofp(e.builder.lshr(word, ir.Constant(I64, 11)), ir.DoubleType())
    half = ir.Constant(ir.DoubleType(), 0.5)
    return e.builder.fmul(e.builder.fadd(whole, half), ir.Constant(ir.DoubleType(), 2.0**-53))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contend(Call):
    """An item is a draw."""

    draws: int
    """Lines of four words: the row's address, one over the temperature (a double), the hash's stream, and where 32-bit
    numbers go: how many tokens there are (-1: too many, or the row is not finite), and the tokens, ascending."""
    count: int
    """Tokens of a row."""


(_DRAWS, _COUNT) = numbers(Contend)


@kernel
def _bounds(row: int, start: int, left: int, inverse: Vector, stream: int) -> Vector:
    """Of the values of up to 16 tokens; minus infinity behind the last one."""
    logits = load(row + 4 * start) if left >= 16 else load_first(row + 4 * start, left)
    bound = fma(logits, inverse, _noise_bounds(start, stream))
    return bound if left >= 16 else between(bound, 0, left, real(-math.inf))


@done_by(Contend)
def contend(call: int, item: int, scratch: int) -> None:
    """One item of `Contend`."""
    draw, count = field(call, _DRAWS) + 32 * item, field(call, _COUNT)
    row, stream, out = field(draw, 0), field(draw, 2), field(draw, 3)
    factor = real_field(draw, 1)
    inverse = splat(factor)
    top, zeros = splat(real(-math.inf)), splat(real(0.0))
    for start in range(0, count, 16):
        top = maximum(_bounds(row, start, count - start, inverse, stream), top)
        logits = load(row + 4 * start) if count - start >= 16 else load_first(row + 4 * start, count - start)
        # Zero, unless a logit is not finite.
        zeros = add(zeros, multiply(logits, splat(real(0.0))))
    store_int(out, -1)
    if sum_lanes(zeros) != real(0.0):
        return
    highest = largest_lane(top)
    floor = highest
    for start in range(0, count, 16):
        bounds = _bounds(row, start, count - start, inverse, stream)
        if largest_lane(bounds) == highest:
            store(scratch, bounds)
            lane = 0
            while load_float(scratch + 4 * lane) != highest:
                lane += 1
            noise = -math.log(-math.log(_uniform(start + lane, stream)))
            floor = real(load_float(row + 4 * (start + lane)) * factor + noise - _SLACK)
            break
    found = 0
    for start in range(0, count, 16):
        bounds = _bounds(row, start, count - start, inverse, stream)
        if largest_lane(bounds) >= floor:
            store(scratch, bounds)
            for lane in range(min(16, count - start)):
                if load_float(scratch + 4 * lane) >= floor:
                    if found == MOST:
                        return
                    found += 1
                    store_int(out + 4 * found, start + lane)
    store_int(out, found)

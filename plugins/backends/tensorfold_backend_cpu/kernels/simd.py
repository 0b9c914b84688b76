"""What kernels are written in: memory by address, and vectors of 16 floats.

Every function is exact in each lane or written in one order of operations, so a kernel's bits are the same on every
processor.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from numba import types

from tensorfold_backend_cpu.kernels.emitter import (
    F16,
    F32,
    I8,
    I16,
    I32,
    I64,
    LANES,
    V32,
    VF,
    Emitter,
    operation,
    vector_type,
)
from tensorfold_backend_cpu.kernels.untyped import ir

__all__ = [
    "ACTIVATIONS",
    "add",
    "between",
    "divide",
    "exp",
    "exp_of",
    "field",
    "fma",
    "gelu",
    "largest_lane",
    "largest_magnitude",
    "load",
    "load_bfloat",
    "load_byte",
    "load_first",
    "load_float",
    "load_half",
    "load_int",
    "maximum",
    "minimum",
    "multiply",
    "real_field",
    "relu2",
    "round_to_bytes",
    "set_field",
    "sigmoid",
    "silu",
    "splat",
    "store",
    "store_first",
    "store_float",
    "store_half",
    "store_int",
    "subtract",
    "sum_lanes",
    "tanh",
    "where_bytes",
]

_address = types.int64
_i64 = types.int64
_f32 = types.float32
_v = vector_type

_MAGIC = 1.5 * 2.0**23
"""Added to a float below 2**22, it leaves the nearest integer in the low bits (ties to even)."""
_MAGIC_BITS = 0x4B400000


# ---- scalars in memory ------------------------------------------------------------------------------------------


@operation(_i64, _address, _i64)
def field(e: Emitter, base: Any, index: Any) -> Any:
    """The 64-bit integer number `index` behind an address."""
    return e.load(I64, e.at(base, index, 8))


@operation(types.void, _address, _i64, _i64)
def set_field(e: Emitter, base: Any, index: Any, value: Any) -> None:
    """Write the 64-bit integer number `index` behind an address, which no other thread reads yet."""
    e.store(value, e.at(base, index, 8))


@operation(_f32, _address, _i64)
def real_field(e: Emitter, base: Any, index: Any) -> Any:
    """The same 64 bits read as a double, rounded to a float."""
    return e.builder.fptrunc(e.load(ir.DoubleType(), e.at(base, index, 8)), F32)


@operation(_f32, _address)
def load_float(e: Emitter, address: Any) -> Any:
    """One float."""
    return e.load(F32, address)


@operation(types.void, _address, _f32)
def store_float(e: Emitter, address: Any, value: Any) -> None:
    """One float."""
    e.store(value, address)


@operation(_i64, _address)
def load_int(e: Emitter, address: Any) -> Any:
    """A 32-bit integer, widened."""
    return e.builder.sext(e.load(I32, address), I64)


@operation(types.void, _address, _i64)
def store_int(e: Emitter, address: Any, value: Any) -> None:
    """A 32-bit integer."""
    e.store(e.builder.trunc(value, I32), address)


@operation(_f32, _address)
def load_half(e: Emitter, address: Any) -> Any:
    """A float of half precision."""
    return e.builder.fpext(e.load(F16, address), F32)


@operation(types.void, _address, _f32)
def store_half(e: Emitter, address: Any, value: Any) -> None:
    """Rounded to half precision."""
    e.store(e.builder.fptrunc(value, F16), address)


@operation(_f32, _address)
def load_bfloat(e: Emitter, address: Any) -> Any:
    """A bfloat16: the upper half of a float."""
    bits = e.builder.shl(e.builder.zext(e.load(I16, address), I32), ir.Constant(I32, 16))
    return e.builder.bitcast(bits, F32)


@operation(_i64, _address)
def load_byte(e: Emitter, address: Any) -> Any:
    """An unsigned byte."""
    return e.builder.zext(e.load(I8, address), I64)


# ---- vectors in memory ------------------------------------------------------------------------------------------


@operation(_v, _address)
def load(e: Emitter, address: Any) -> Any:
    """Sixteen floats."""
    return e.load(VF, address)


@operation(types.void, _address, _v)
def store(e: Emitter, address: Any, vector: Any) -> None:
    """Sixteen floats."""
    e.store(vector, address)


@operation(_v, _address, _i64)
def load_first(e: Emitter, address: Any, count: Any) -> Any:
    """The first `count` floats, and zeros; memory behind them is not touched."""
    pointer = e.builder.inttoptr(address, VF.as_pointer())
    align = ir.Constant(I32, 4)
    name = f"llvm.masked.load.v{LANES}f32.p0"
    return e.call(name, VF, pointer, align, e.first_lanes(count), e.constant(VF, 0.0))


@operation(types.void, _address, _v, _i64)
def store_first(e: Emitter, address: Any, vector: Any, count: Any) -> None:
    """The first `count` lanes."""
    masked_store(e, address, vector, count)


def masked_store(e: Emitter, address: Any, vector: Any, count: Any) -> None:
    """The same, for other emitters."""
    pointer = e.builder.inttoptr(address, VF.as_pointer())
    name = f"llvm.masked.store.v{LANES}f32.p0"
    e.call(name, ir.VoidType(), vector, pointer, ir.Constant(I32, 4), e.first_lanes(count))


# ---- lane by lane -----------------------------------------------------------------------------------------------


@operation(_v, _f32)
def splat(e: Emitter, value: Any) -> Any:
    """The value in every lane."""
    return e.splat(value)


@operation(_v, _v, _v)
def add(e: Emitter, a: Any, b: Any) -> Any:
    """a + b."""
    return e.builder.fadd(a, b)


@operation(_v, _v, _v)
def subtract(e: Emitter, a: Any, b: Any) -> Any:
    """a - b."""
    return e.builder.fsub(a, b)


@operation(_v, _v, _v)
def multiply(e: Emitter, a: Any, b: Any) -> Any:
    """a * b."""
    return e.builder.fmul(a, b)


@operation(_v, _v, _v)
def divide(e: Emitter, a: Any, b: Any) -> Any:
    """a / b."""
    return e.builder.fdiv(a, b)


@operation(_v, _v, _v, _v)
def fma(e: Emitter, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    return e.fma(a, b, c)


def larger(e: Emitter, a: Any, b: Any) -> Any:
    """a where a > b, else b, which is also what a NaN on either side gives."""
    return e.builder.select(e.builder.fcmp_ordered(">", a, b), a, b)


def smaller(e: Emitter, a: Any, b: Any) -> Any:
    """a where a < b, else b, which is also what a NaN on either side gives."""
    return e.builder.select(e.builder.fcmp_ordered("<", a, b), a, b)


@operation(_v, _v, _v)
def maximum(e: Emitter, a: Any, b: Any) -> Any:
    """a where a > b, else b, which is also what a NaN on either side gives."""
    return larger(e, a, b)


@operation(_v, _v, _v)
def minimum(e: Emitter, a: Any, b: Any) -> Any:
    """a where a < b, else b, which is also what a NaN on either side gives."""
    return smaller(e, a, b)


@operation(_v, _v, _i64, _i64, _f32)
def between(e: Emitter, vector: Any, first: Any, last: Any, rest: Any) -> Any:
    """Lanes `first` to `last - 1`, and `rest` in the others."""
    other = e.splat(rest)
    return e.builder.select(e.first_lanes(first), other, e.builder.select(e.first_lanes(last), vector, other))


@operation(_v, _v, _address, _f32)
def where_bytes(e: Emitter, vector: Any, address: Any, rest: Any) -> Any:
    """The lanes whose byte (of 16 at the address) is not 0, and `rest` in the others."""
    kind = ir.VectorType(I8, LANES)
    chosen = e.builder.icmp_unsigned("!=", e.load(kind, address), e.constant(kind, 0))
    return e.builder.select(chosen, vector, e.splat(rest))


# ---- across lanes -----------------------------------------------------------------------------------------------


def folded(e: Emitter, vector: Any, combine: Any) -> Any:
    """The lanes combined by halves: i with i + 8, then i with i + 4, and so on."""
    count = vector.type.count
    while count > 1:
        count //= 2
        lower, upper = e.shuffle(vector, vector, range(count)), e.shuffle(vector, vector, range(count, 2 * count))
        vector = combine(lower, upper)
    return e.builder.extract_element(vector, ir.Constant(I32, 0))


@operation(_f32, _v)
def sum_lanes(e: Emitter, vector: Any) -> Any:
    """By halves."""
    return folded(e, vector, e.builder.fadd)


@operation(_f32, _v)
def largest_lane(e: Emitter, vector: Any) -> Any:
    """The largest; a NaN may be lost."""
    return folded(e, vector, partial(larger, e))


@operation(_f32, _v, _v)
def largest_magnitude(e: Emitter, a: Any, b: Any) -> Any:
    """The largest absolute value of both vectors; NaN when there is one, for its bits are the largest integers."""
    without_sign = e.constant(V32, 0x7FFFFFFF)
    one, two = (e.builder.and_(e.builder.bitcast(each, V32), without_sign) for each in (a, b))
    larger_bits = e.builder.select(e.builder.icmp_unsigned(">", one, two), one, two)
    most = e.call(f"llvm.vector.reduce.umax.v{LANES}i32", I32, larger_bits)
    return e.builder.bitcast(most, F32)


@operation(_i64, _address, _v, _f32)
def round_to_bytes(e: Emitter, address: Any, vector: Any, factor: Any) -> Any:
    """Store vector * factor, rounded to the nearest integers, as 16 signed bytes; returns their sum."""
    shifted = e.fma(vector, e.splat(factor), e.constant(VF, _MAGIC))
    numbers = e.builder.trunc(e.builder.bitcast(shifted, V32), ir.VectorType(I8, LANES))
    e.store(numbers, address)
    total = e.call(f"llvm.vector.reduce.add.v{LANES}i32", I32, e.builder.sext(numbers, V32))
    return e.builder.sext(total, I64)


# ---- functions --------------------------------------------------------------------------------------------------

_LOG2_E = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
"""Cephes' polynomial for exp(r) = 1 + r + r*r*p(r), |r| <= ln 2 / 2."""


def emit_exp(e: Emitter, x: Any) -> Any:
    """exp in every lane, within 2 units in the last place; 0 below -87, infinity above 89, exp(0) = 1 exactly."""

    def c(value: float) -> Any:
        return e.constant(VF, value)

    # Written so that a NaN stays one: the comparison is false and x comes out.
    none = e.builder.fcmp_ordered("<", x, c(-87.0))
    x = larger(e, c(-87.0), smaller(e, c(89.0), x))
    shifted = e.fma(x, c(_LOG2_E), c(_MAGIC))
    power = e.builder.sub(e.builder.bitcast(shifted, V32), e.constant(V32, _MAGIC_BITS))
    whole = e.builder.fsub(shifted, c(_MAGIC))
    rest = e.fma(whole, c(-_LN2_LOW), e.fma(whole, c(-_LN2_HIGH), x))
    p = c(_EXP[0])
    for coefficient in _EXP[1:]:
        p = e.fma(p, rest, c(coefficient))
    y = e.builder.fadd(e.fma(p, e.builder.fmul(rest, rest), rest), c(1.0))
    # In two factors, for 2 ** power itself may lie outside of what a float can hold.
    half = e.builder.ashr(power, e.constant(V32, 1))
    for part in (half, e.builder.sub(power, half)):
        bits = e.builder.shl(e.builder.add(part, e.constant(V32, 127)), e.constant(V32, 23))
        y = e.builder.fmul(y, e.builder.bitcast(bits, VF))
    # Results too small for a normal float would slow down all that is computed from them.
    return e.builder.select(none, c(0.0), y)


@operation(_v, _v)
def exp(e: Emitter, x: Any) -> Any:
    """exp(x)."""
    return emit_exp(e, x)


@operation(_f32, _f32)
def exp_of(e: Emitter, x: Any) -> Any:
    """exp of one float, with the bits that a lane would have."""
    return e.builder.extract_element(emit_exp(e, e.splat(x)), ir.Constant(I32, 0))


def _logistic(e: Emitter, numerator: Any, x: Any) -> Any:
    """numerator / (1 + exp(-x))."""
    return e.builder.fdiv(numerator, e.builder.fadd(emit_exp(e, e.builder.fneg(x)), e.constant(VF, 1.0)))


@operation(_v, _v)
def tanh(e: Emitter, x: Any) -> Any:
    """2 / (1 + exp(-2 x)) - 1."""
    double = e.builder.fadd(x, x)
    return e.builder.fsub(_logistic(e, e.constant(VF, 2.0), double), e.constant(VF, 1.0))


ACTIVATIONS = ("silu", "gelu", "relu2", "sigmoid")
"""In the order of their numbers inside instructions."""


def _activation(name: str) -> Any:
    @operation(_v, _v)
    def emit(e: Emitter, x: Any) -> Any:
        if name == "silu":
            return _logistic(e, x, x)
        if name == "sigmoid":
            return _logistic(e, e.constant(VF, 1.0), x)
        if name == "relu2":
            # A NaN stays one.
            positive = larger(e, e.constant(VF, 0.0), x)
            return e.builder.fmul(positive, positive)
        # gelu: (1 + tanh(u)) / 2 is the logistic function of 2 u.
        cubed = e.builder.fmul(e.builder.fmul(x, x), x)
        inner = e.fma(cubed, e.constant(VF, 0.044715), x)
        return _logistic(e, x, e.builder.fmul(inner, e.constant(VF, 2.0 * math.sqrt(2.0 / math.pi))))

    return emit


silu, gelu, relu2, sigmoid = (_activation(each) for each in ACTIVATIONS)

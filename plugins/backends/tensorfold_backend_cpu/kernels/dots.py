"""Products of 8-bit integers: 16 output rows at a time against one row of activations, four columns a lane.

A weight vector holds, for each of 16 output rows, its codes in four neighbouring columns (64 bytes); the activations of
these columns, four signed bytes, are spread to every lane. Every level gives the same integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorfold_backend_cpu.kernels.emitter import I8, I16, I32, LANES, V8, V32, Emitter
from tensorfold_backend_cpu.kernels.levels import LEVEL
from tensorfold_backend_cpu.kernels.untyped import ir

__all__ = ["Codes", "accumulate", "load_codes"]

Codes = list[Any]
"""Weight vectors of one step, in the form that `accumulate` takes; one for each four columns, or two (low, high)."""

_V16 = ir.VectorType(I16, 2 * LANES)


def _low(e: Emitter, raw: Any) -> Any:
    """The lower nibbles."""
    return e.builder.and_(raw, e.constant(V8, 15))


def _high(e: Emitter, raw: Any) -> Any:
    """The upper nibbles."""
    moved = e.builder.lshr(e.builder.bitcast(raw, _V16), e.constant(_V16, 4))
    return e.builder.and_(e.builder.bitcast(moved, V8), e.constant(V8, 15))


def load_codes(e: Emitter, address: Any, bits: int, chunks: int) -> Codes:
    """The codes of one step of `chunks` * 4 columns.

    With 4 bits a vector holds two chunks: the earlier one in the lower nibbles.
    """
    if bits == 4:
        packed = [e.load(V8, e.at(address, 64 * number)) for number in range(chunks // 2)]
        return [half for raw in packed for half in (_low(e, raw), _high(e, raw))]
    whole = [e.load(V8, e.at(address, 64 * number)) for number in range(chunks)]
    if LEVEL == "avx2":
        return [half for raw in whole for half in (_low(e, raw), _high(e, raw))]
    if LEVEL == "dotprod":
        return [e.builder.xor(raw, e.constant(V8, -128)) for raw in whole]
    return whole


def accumulate(e: Emitter, codes: Codes, activations: Sequence[Any], start: Any, negative_sum: Any, bits: int) -> Any:
    """start + the sum of code * activation over the step, in each of 16 lanes.

    Args:
        codes: from `load_codes`.
        activations: four bytes for each chunk, as a 32-bit integer.
        start: 16 integers.
        negative_sum: minus the sum of the step's activations, as 16 integers.
        bits: 4 or 8, as in `load_codes`.
    """
    if LEVEL == "avx2":
        return _by_pairs(e, codes, activations, start, bits)
    if LEVEL == "plain":
        return _by_bytes(e, codes, activations, start)
    if LEVEL == "dotprod" and bits == 8:
        # Codes were made signed by taking 128 off, which this adds again.
        start = e.builder.sub(start, e.builder.shl(negative_sum, e.constant(V32, 7)))
    total = start
    for code, activation in zip(codes, activations, strict=True):
        total = _dot(e, total, code, e.builder.bitcast(e.splat(activation), V8))
    return total


def _dot(e: Emitter, total: Any, code: Any, activation: Any) -> Any:
    """One instruction that adds four products to each lane, at whatever width the processor has it."""
    match LEVEL:
        case "avx512vnni":
            return e.call("llvm.x86.avx512.vpdpbusd.512", V32, total, code, activation)
        case "avxvnni":
            name, parts = "llvm.x86.avx512.vpdpbusd.256", 2
        case _:
            name, parts = "llvm.aarch64.neon.sdot.v4i32.v16i8", 4
    kind = ir.VectorType(I32, LANES // parts)
    pieces = [
        e.call(name, kind, *(e.part(each, number, parts) for each in (total, code, activation)))
        for number in range(parts)
    ]
    return e.joined(pieces)


def _by_pairs(e: Emitter, codes: Codes, activations: Sequence[Any], start: Any, bits: int) -> Any:
    """AVX2: products of nibbles are added in pairs, to 16 bits, and widened once a step.

    16 bits hold them: 8 chunks of two products of 15 * 127 are 30,480.
    """
    half16, half32 = ir.VectorType(I16, LANES), ir.VectorType(I32, LANES // 2)
    ones = e.constant(half16, 1)
    count = 2 if bits == 8 else 1
    halves: list[Any] = []
    for half in range(2):
        sums: list[Any] = [None] * count
        for number, activation in enumerate(activations):
            spread = e.builder.bitcast(e.splat(activation, LANES // 2), ir.VectorType(I8, 2 * LANES))
            for nibble in range(count):
                code = e.part(codes[number * count + nibble], half, 2)
                pairs = e.call("llvm.x86.avx2.pmadd.ub.sw", half16, code, spread)
                sums[nibble] = pairs if sums[nibble] is None else e.builder.add(sums[nibble], pairs)
        wide = [e.call("llvm.x86.avx2.pmadd.wd", half32, each, ones) for each in sums]
        total = wide[0] if count == 1 else e.builder.add(wide[0], e.builder.shl(wide[1], e.constant(half32, 4)))
        halves.append(total)
    return e.builder.add(start, e.joined(halves))


def _by_bytes(e: Emitter, codes: Codes, activations: Sequence[Any], start: Any) -> Any:
    """Any processor: one byte of each lane after the other."""
    total = start
    for code, activation in zip(codes, activations, strict=True):
        lanes = e.builder.bitcast(code, V32)
        for byte in range(4):
            moved = e.builder.lshr(lanes, e.constant(V32, 8 * byte))
            weight = e.builder.and_(moved, e.constant(V32, 255))
            shifted = e.builder.shl(activation, ir.Constant(I32, 24 - 8 * byte))
            value = e.builder.ashr(shifted, ir.Constant(I32, 24))
            total = e.builder.add(total, e.builder.mul(weight, e.splat(value)))
    return total

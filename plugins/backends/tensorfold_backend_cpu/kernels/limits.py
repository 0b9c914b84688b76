"""What this machine can do at most: reading memory, multiplying floats, multiplying 8-bit integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from numba import types

from tensorfold_backend_cpu.kernels.calls import Call, done_by, numbers
from tensorfold_backend_cpu.kernels.compiling import real
from tensorfold_backend_cpu.kernels.dots import accumulate, load_codes
from tensorfold_backend_cpu.kernels.emitter import I32, LANES, V32, VF, Emitter, operation
from tensorfold_backend_cpu.kernels.simd import add, field, load, splat, store

__all__ = ["CHAINS", "TURN_DOTS", "TURN_FMAS", "MultiplyFloats", "MultiplyIntegers", "Read"]

CHAINS: Final = 8
"""Sums that grow side by side, enough to hide how long an instruction takes."""
TURN_FMAS: Final = 4 * CHAINS * LANES
"""Multiplications and additions of one turn of `MultiplyFloats`."""
TURN_DOTS: Final = CHAINS * LANES * 32
"""Of one turn of `MultiplyIntegers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Call):
    """An item is a block of memory."""

    block: int
    """Bytes, a multiple of 256."""
    memory: int
    out: int
    """64 bytes for each item."""


(_BLOCK, _MEMORY, _OUT) = numbers(Read)


@done_by(Read)
def read_block(call: int, item: int, scratch: int) -> None:
    """One item of `Read`."""
    block = field(call, _BLOCK)
    begin = field(call, _MEMORY) + item * block
    one, two, three, four = splat(real(0.0)), splat(real(0.0)), splat(real(0.0)), splat(real(0.0))
    for line in range(begin, begin + block, 256):
        one, two = add(one, load(line)), add(two, load(line + 64))
        three, four = add(three, load(line + 128)), add(four, load(line + 192))
    store(field(call, _OUT) + 64 * item, add(add(one, two), add(three, four)))


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiplyFloats(Call):
    """An item is so many turns in registers."""

    turns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiplyIntegers(Call):
    """An item is so many turns over one step of weights."""

    turns: int


(_TURNS,) = numbers(MultiplyFloats)


@operation(types.void, types.int64, types.int64)
def _fmas(e: Emitter, turns: Any, out: Any) -> None:
    """`TURN_FMAS` for each turn."""
    factor = e.load(VF, out)
    totals = [e.variable(e.constant(VF, float(number))) for number in range(CHAINS)]
    with e.loop(turns):
        for _ in range(4):
            for total in totals:
                e.builder.store(e.fma(factor, e.builder.load(total), factor), total)
    for total in totals:
        e.store(e.builder.load(total), out)


@operation(types.void, types.int64, types.int64)
def _dots(e: Emitter, turns: Any, out: Any) -> None:
    """`TURN_DOTS` for each turn: one step of 4-bit weights times `CHAINS` rows."""
    totals = [e.variable(e.constant(V32, 0)) for _ in range(CHAINS)]
    with e.loop(turns):
        codes = load_codes(e, out, 4, 8)
        for row, total in enumerate(totals):
            chunks = [e.load(I32, e.at(out, 256 + 32 * row + 4 * chunk)) for chunk in range(8)]
            e.builder.store(accumulate(e, codes, chunks, e.builder.load(total), e.constant(V32, 0), 4), total)
    for total in totals:
        e.store(e.builder.load(total), e.at(out, 512))


@done_by(MultiplyFloats)
def multiply_floats(call: int, item: int, scratch: int) -> None:
    """One item of `MultiplyFloats`."""
    store(scratch, splat(real(1e-3)))
    _fmas(field(call, _TURNS), scratch)


@done_by(MultiplyIntegers)
def multiply_integers(call: int, item: int, scratch: int) -> None:
    """One item of `MultiplyIntegers`."""
    _dots(field(call, _TURNS), scratch)

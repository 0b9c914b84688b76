"""Recurrences over fixed-size states: the gated delta rule and state space duality, row after row of a sequence.

An item is one head of one sequence. It reads the committed state, which stays as it is, and leaves the state after all
rows elsewhere. Every number goes through the same operations in the same order however many rows a call has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorfold_backend_cpu.kernels.calls import Call, done_by, numbers
from tensorfold_backend_cpu.kernels.compiling import kernel, real
from tensorfold_backend_cpu.kernels.emitter import Vector
from tensorfold_backend_cpu.kernels.lanes import put, some
from tensorfold_backend_cpu.kernels.simd import (
    add,
    field,
    fma,
    load,
    load_float,
    multiply,
    splat,
    store,
    store_float,
    subtract,
    sum_lanes,
)

__all__ = ["RUN_WORDS", "GatedDelta", "StateSpace"]

RUN_WORDS: Final = 4
"""Of a sequence: its first row, its rows, and the addresses of its state before and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDelta(Call):
    """S <- fade S; S <- S + key (beta (value - S key)); out = S query, with S `[k_width, v_width]` of each head."""

    runs: int
    """Address of a word with that of `[sequences, 4]` words: a Step's own are put there."""
    heads: int
    shared: int
    """Value heads that share a key head."""
    k_width: int
    v_width: int
    fades: int
    """Numbers that a head's state is faded by: one, or one for each line."""
    q: int
    """`[R, heads / shared, k_width]`, and so `k`."""
    k: int
    v: int
    """`[R, heads, v_width]`, and so `out`."""
    fade: int
    """`[R, heads, fades]`."""
    beta: int
    """`[R, heads]`."""
    out: int


(_RUNS, _HEADS, _SHARED, _K_WIDTH, _V_WIDTH, _FADES, _Q, _K, _V, _FADE, _BETA, _OUT) = numbers(GatedDelta)


@kernel
def delta_columns(
    key: int,
    query: int,
    fade: int,
    each: int,
    rate: Vector,
    value: int,
    out: int,
    source: int,
    target: int,
    line: int,
    k_width: int,
) -> None:
    """The same for 64 columns.

    PERF: four sums that do not wait for each other; one at a time, each addition waits for the last one.
    """
    one = two = three = four = splat(real(0.0))
    for index in range(k_width):
        state = source + line * index
        left, part = splat(load_float(fade + each * index)), splat(load_float(key + 4 * index))
        one = fma(multiply(load(state), left), part, one)
        two = fma(multiply(load(state + 64), left), part, two)
        three = fma(multiply(load(state + 128), left), part, three)
        four = fma(multiply(load(state + 192), left), part, four)
    one, two = multiply(subtract(load(value), one), rate), multiply(subtract(load(value + 64), two), rate)
    three, four = multiply(subtract(load(value + 128), three), rate), multiply(subtract(load(value + 192), four), rate)
    a = b = c = d = splat(real(0.0))
    for index in range(k_width):
        state, after = source + line * index, target + line * index
        left, part = splat(load_float(fade + each * index)), splat(load_float(key + 4 * index))
        asked = splat(load_float(query + 4 * index))
        first, second = fma(part, one, multiply(load(state), left)), fma(part, two, multiply(load(state + 64), left))
        store(after, first)
        store(after + 64, second)
        a, b = fma(first, asked, a), fma(second, asked, b)
        third = fma(part, three, multiply(load(state + 128), left))
        fourth = fma(part, four, multiply(load(state + 192), left))
        store(after + 128, third)
        store(after + 192, fourth)
        c, d = fma(third, asked, c), fma(fourth, asked, d)
    store(out, a)
    store(out + 64, b)
    store(out + 128, c)
    store(out + 192, d)


@kernel
def delta_row(call: int, row: int, head: int, column: int, count: int, source: int, target: int) -> None:
    """`count` columns of one head's state, from `source` to `target`, by one row."""
    heads, k_width, v_width, fades = (
        field(call, _HEADS),
        field(call, _K_WIDTH),
        field(call, _V_WIDTH),
        field(call, _FADES),
    )
    line = 4 * v_width
    shared = field(call, _SHARED)
    key_place = 4 * k_width * (row * (heads // shared) + head // shared)
    key, query = field(call, _K) + key_place, field(call, _Q) + key_place
    place = row * heads + head
    fade = field(call, _FADE) + 4 * fades * place
    each = 4 if fades > 1 else 0
    value = field(call, _V) + line * place + 4 * column
    out = field(call, _OUT) + line * place + 4 * column
    rate = splat(load_float(field(call, _BETA) + 4 * place))
    if count >= 64:
        delta_columns(key, query, fade, each, rate, value, out, source, target, line, k_width)
        return
    recalled = splat(real(0.0))
    for index in range(k_width):
        state = multiply(some(source + line * index, count), splat(load_float(fade + each * index)))
        recalled = fma(state, splat(load_float(key + 4 * index)), recalled)
    change = multiply(subtract(some(value, count), recalled), rate)
    read = splat(real(0.0))
    for index in range(k_width):
        state = multiply(some(source + line * index, count), splat(load_float(fade + each * index)))
        state = fma(splat(load_float(key + 4 * index)), change, state)
        put(target + line * index, state, count)
        read = fma(state, splat(load_float(query + 4 * index)), read)
    put(out, read, count)


@done_by(GatedDelta)
def gated_delta(call: int, item: int, scratch: int) -> None:
    """One item of `GatedDelta`: a few columns at a time go through all rows, so that they stay close."""
    heads, v_width = field(call, _HEADS), field(call, _V_WIDTH)
    run, head = field(field(call, _RUNS), 0) + 8 * RUN_WORDS * (item // heads), item % heads
    first, rows = field(run, 0), field(run, 1)
    size = 4 * field(call, _K_WIDTH) * v_width
    before, after = field(run, 2) + size * head, field(run, 3) + size * head
    wide = v_width - v_width % 64
    for turn in range(wide // 64 + (v_width - wide + 15) // 16):
        column = 64 * turn if 64 * turn < wide else wide + 16 * (turn - wide // 64)
        count = 64 if column < wide else min(16, v_width - column)
        for number in range(rows):
            source = after if number else before
            delta_row(call, first + number, head, column, count, source + 4 * column, after + 4 * column)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpace(Call):
    """S <- fade S + entering written; out = S read, with S `[width, states]` of each head."""

    runs: int
    """As above."""
    heads: int
    shared: int
    """Heads of a group."""
    width: int
    states: int
    fade: int
    """`[R, heads]`."""
    entering: int
    """`[R, heads, width]`, and so `out`."""
    written: int
    """`[R, heads / shared, states]`, and so `read`."""
    read: int
    out: int


(_S_RUNS, _S_HEADS, _S_SHARED, _WIDTH, _STATES, _S_FADE, _ENTERING, _WRITTEN, _READ, _S_OUT) = numbers(StateSpace)


@done_by(StateSpace)
def state_space(call: int, item: int, scratch: int) -> None:
    """One item of `StateSpace`."""
    heads, width, states = field(call, _S_HEADS), field(call, _WIDTH), field(call, _STATES)
    run, head = field(field(call, _S_RUNS), 0) + 8 * RUN_WORDS * (item // heads), item % heads
    first, rows = field(run, 0), field(run, 1)
    shared = field(call, _S_SHARED)
    size = 4 * width * states
    before, after = field(run, 2) + size * head, field(run, 3) + size * head
    for number in range(rows):
        row = first + number
        place = row * heads + head
        source = after if number else before
        group = 4 * states * (row * (heads // shared) + head // shared)
        written, read = field(call, _WRITTEN) + group, field(call, _READ) + group
        fade = splat(load_float(field(call, _S_FADE) + 4 * place))
        for index in range(width):
            line = 4 * states * index
            entering = splat(load_float(field(call, _ENTERING) + 4 * (place * width + index)))
            total = splat(real(0.0))
            for start in range(0, states, 16):
                count = states - start
                faded = multiply(some(source + line + 4 * start, count), fade)
                state = add(faded, multiply(entering, some(written + 4 * start, count)))
                put(after + line + 4 * start, state, count)
                total = fma(state, some(read + 4 * start, count), total)
            store_float(field(call, _S_OUT) + 4 * (place * width + index), sum_lanes(total))

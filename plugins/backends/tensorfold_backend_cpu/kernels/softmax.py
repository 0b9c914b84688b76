"""Softmax as attention needs it: page by page with a running maximum, and spans of pages joined afterwards."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types
from numba.extending import overload

from tensorfold_backend_cpu.kernels.compiling import kernel, real
from tensorfold_backend_cpu.kernels.positions import PAGE
from tensorfold_backend_cpu.kernels.simd import (
    add,
    between,
    divide,
    exp,
    exp_of,
    largest_lane,
    load,
    load_float,
    maximum,
    multiply,
    splat,
    store,
    store_float,
    subtract,
    sum_lanes,
    tanh,
    where_bytes,
)
from tensorfold_backend_cpu.kernels.tiles import FLOAT_COLUMNS, FLOAT_ROWS, Stored, float_tile

__all__ = ["LOWEST", "clear", "joined", "product", "weigh"]

LOWEST: Final = real(-np.inf)
"""A maximum before anything was seen."""
_ZERO = real(0.0)


def product(
    stored: int,
    fresh: int,
    queries: int,
    a: int,
    a_stride: int,
    b: int,
    columns: int,
    count: int,
    out: int,
    o_stride: int,
) -> None:
    """`out [queries, columns]` (+)= `a [queries, count]` times `b [count, columns]`; for kernels, with the first two
    constant: 0 for floats and 1 for half floats in `b`, 1 to begin at zero. Columns are a multiple of 16."""
    raise NotImplementedError


# PERF: the tile for each number of rows is another function, and a compiled function cannot choose one from a tuple of
# functions by a number, so that each is called in a branch of its own.
@overload(product, prefer_literal=True)
def _product(
    stored: Any,
    fresh: Any,
    queries: Any,
    a: Any,
    a_stride: Any,
    b: Any,
    columns: Any,
    count: Any,
    out: Any,
    o_stride: Any,
) -> Any:
    if not isinstance(stored, types.IntegerLiteral) or not isinstance(fresh, types.IntegerLiteral):
        return None
    kind: Stored = "f16" if stored.literal_value else "f32"
    width = 2 if kind == "f16" else 4
    begin = bool(fresh.literal_value)
    wide = 16 * FLOAT_COLUMNS
    wide_four, wide_three, wide_two, wide_one = (
        float_tile(rows, FLOAT_COLUMNS, kind, fresh=begin) for rows in FLOAT_ROWS
    )
    four, three, two, one = (float_tile(rows, 1, kind, fresh=begin) for rows in FLOAT_ROWS)

    def multiplied(
        stored: Any,
        fresh: Any,
        queries: Any,
        a: Any,
        a_stride: Any,
        b: Any,
        columns: Any,
        count: Any,
        out: Any,
        o_stride: Any,
    ) -> Any:
        stride = width * columns
        query = 0
        while query < queries:
            rows = min(4, queries - query)
            x, y = a + query * a_stride, out + query * o_stride
            column = 0
            while column < columns:
                if wide > 16 and columns - column >= wide:
                    if rows == 4:
                        wide_four(x, a_stride, b + width * column, stride, count, y + 4 * column, o_stride)
                    elif rows == 3:
                        wide_three(x, a_stride, b + width * column, stride, count, y + 4 * column, o_stride)
                    elif rows == 2:
                        wide_two(x, a_stride, b + width * column, stride, count, y + 4 * column, o_stride)
                    else:
                        wide_one(x, a_stride, b + width * column, stride, count, y + 4 * column, o_stride)
                    column += wide
                else:
                    if rows == 4:
                        four(x, a_stride, b + width * column, stride, count, y + 4 * column, o_stride)
                    elif rows == 3:
                        three(x, a_stride, b + width * column, stride, count, y + 4 * column, o_stride)
                    elif rows == 2:
                        two(x, a_stride, b + width * column, stride, count, y + 4 * column, o_stride)
                    else:
                        one(x, a_stride, b + width * column, stride, count, y + 4 * column, o_stride)
                    column += 16
            query += rows

    return multiplied


@kernel
def weigh(
    scores: int, first: int, last: int, selected: int, softcap: float, state: int, sums: int, v_line: int
) -> None:
    """One query and page: 64 scores become weights, and what was summed before is scaled down to the new maximum.

    Args:
        first, last: the positions of the page that the query sees.
        selected: a byte for each position; 0: all are read.
        state: maximum and sum of weights so far.
        sums: the weighted values so far, `[v_line]`.
    """
    top = splat(LOWEST)
    for lane in range(0, PAGE, 16):
        score = load(scores + 4 * lane)
        if softcap != _ZERO:
            score = multiply(tanh(divide(score, splat(softcap))), splat(softcap))
        if first > 0 or last < PAGE:
            score = between(score, first - lane, last - lane, LOWEST)
        if selected:
            score = where_bytes(score, selected + lane, LOWEST)
        store(scores + 4 * lane, score)
        top = maximum(score, top)
    before, total = load_float(state), load_float(state + 4)
    highest = max(before, largest_lane(top))
    if highest == LOWEST:
        # Nothing was selected up to here.
        for lane in range(0, PAGE, 16):
            store(scores + 4 * lane, splat(_ZERO))
        return
    added = splat(_ZERO)
    for lane in range(0, PAGE, 16):
        weight = exp(subtract(load(scores + 4 * lane), splat(highest)))
        store(scores + 4 * lane, weight)
        added = add(added, weight)
    kept = exp_of(before - highest)
    store_float(state, highest)
    store_float(state + 4, total * kept + sum_lanes(added))
    if kept != real(1.0):
        for column in range(0, v_line, 16):
            store(sums + 4 * column, multiply(load(sums + 4 * column), splat(kept)))


@kernel
def joined(state: int, sums: int, other: int, other_sums: int, v_line: int) -> None:
    """A span's result added to that of the spans before it."""
    before, after = load_float(state), load_float(other)
    highest = max(before, after)
    if highest == LOWEST:
        return
    kept, new = exp_of(before - highest), exp_of(after - highest)
    store_float(state, highest)
    store_float(state + 4, load_float(state + 4) * kept + load_float(other + 4) * new)
    for column in range(0, v_line, 16):
        scaled = multiply(load(sums + 4 * column), splat(kept))
        store(sums + 4 * column, add(scaled, multiply(load(other_sums + 4 * column), splat(new))))


@kernel
def clear(state: int, sums: int, queries: int, v_line: int) -> None:
    """Nothing was seen yet."""
    for query in range(queries):
        store_float(state + 8 * query, LOWEST)
        store_float(state + 8 * query + 4, _ZERO)
        for column in range(0, v_line, 16):
            store(sums + 4 * (query * v_line + column), splat(_ZERO))

"""Attention over pages, for all rows of a Step.

A page has 64 positions; four pages, counted from the sequence's start, are a span. Within a span a query goes through
its pages with a running maximum (online softmax); spans are then joined in order. Both have one order that follows from
the row's position alone, so spans may be computed by different threads, and rows of one sequence in tiles, without a
change of any bit.

Keys lie as columns, so that a lane is a key and no sum crosses lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from numba import types
from numba.extending import overload

from tensorfold_backend_cpu.kernels.calls import Call, numbers
from tensorfold_backend_cpu.kernels.compiling import Kernel, kernel
from tensorfold_backend_cpu.kernels.positions import PAGE
from tensorfold_backend_cpu.kernels.simd import (
    field,
    load,
    load_first,
    load_float,
    load_int,
    multiply,
    real_field,
    splat,
    store,
    store_first,
    store_float,
)
from tensorfold_backend_cpu.kernels.softmax import clear, joined, product, weigh

__all__ = ["ATTEND_KERNELS", "SPAN", "WORK_WORDS", "Attend", "scratch_bytes"]

SPAN: Final = 4
"""Pages."""
WORK_WORDS: Final = 8
"""Of a piece of work: first row, rows, the first row's position, address of the sequence's page numbers (32 bits each),
first span, last span (exclusive), whether the spans' results are stored one by one, and the span that is stored first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attend(Call):
    """An item is a piece of work for one key head: some rows of a sequence over some spans.

    For each row, span and head it leaves the sum of weighted values `[v_line]`, the maximum and the sum of weights.
    """

    q: int
    q_stride: int
    heads: int
    kv_heads: int
    k_width: int
    v_line: int
    keys: int
    values: int
    scale: float
    softcap: float
    """0: none."""
    window: int
    """0: none."""
    works: int
    """Address of the word that holds the address of the pieces of work."""
    partial: int
    """Address of the word that holds where the results go, `[rows, spans, heads, v_line + 16]`."""
    spans: int
    """Address of the word that holds the largest number of spans of a row."""
    selected: int
    """`[rows, known]` bytes: what a row reads, by position; 0: everything that it may see."""
    known: int
    half: int
    """Pages hold half floats."""

    def chosen(self) -> Kernel:
        """That of the type in pages."""
        return ATTEND_KERNELS[self.half]


(
    _Q,
    _Q_STRIDE,
    _HEADS,
    _KV_HEADS,
    _K_WIDTH,
    _V_LINE,
    _KEYS,
    _VALUES,
    _SCALE,
    _SOFTCAP,
    _WINDOW,
    _WORKS,
    _PARTIAL,
    _SPANS,
    _SELECTED,
    _KNOWN,
    _,
) = numbers(Attend)


def scratch_bytes(rows: int, group: int, k_width: int, v_line: int) -> int:
    """What one item of `Attend` needs."""
    return 4 * rows * group * (k_width + PAGE + 2 * v_line + 4) + 64


@kernel
def rows_that_see(first: int, last: int, position: int, rows: int, window: int) -> tuple[int, int]:
    """Of rows at `position` and on, those that see any of the positions `first` to `last - 1`."""
    begin = max(0, first - position)
    end = rows if window == 0 else min(rows, last - 1 + window - position)
    return begin, max(begin, end)


def pages_of_span(stored: int, call: int, work: int, head: int, span: int, memory: int) -> None:
    """All pages of a span for one piece of work and key head; for kernels, with `stored` constant.

    `memory` holds, for every query of the work: the scaled query, scores, values, and maximum and sum.
    """
    raise NotImplementedError


# PERF: one function of one idea, a page's scores, weights and sums. Cut in two, each part would be given what the other has
# worked out, a dozen numbers a page, and neither is of use without the other; numba wants both in the overload's body.
@overload(pages_of_span, prefer_literal=True)
def _pages_of_span(stored: Any, call: Any, work: Any, head: Any, span: Any, memory: Any) -> Any:
    if not isinstance(stored, types.IntegerLiteral):
        return None
    half = stored.literal_value

    def run(stored: Any, call: Any, work: Any, head: Any, span: Any, memory: Any) -> Any:
        rows, position, pages = field(work, 1), field(work, 2), field(work, 3)
        kv_heads, k_width, v_line = field(call, _KV_HEADS), field(call, _K_WIDTH), field(call, _V_LINE)
        group = field(call, _HEADS) // kv_heads
        window, softcap = field(call, _WINDOW), real_field(call, _SOFTCAP)
        queries = rows * group
        scores = memory + 4 * queries * k_width
        sums = scores + 4 * queries * PAGE
        state = sums + 4 * queries * v_line
        width = 2 if half else 4
        for page in range(span * SPAN, min(span * SPAN + SPAN, (position + rows - 1) // PAGE + 1)):
            start = page * PAGE
            begin, end = rows_that_see(start, start + PAGE, position, rows, window)
            if begin == end:
                continue
            block = load_int(pages + 4 * page) * kv_heads + head
            first, count = begin * group, (end - begin) * group
            product(
                half,
                1,
                count,
                memory + 4 * first * k_width,
                4 * k_width,
                field(call, _KEYS) + width * block * k_width * PAGE,
                PAGE,
                k_width,
                scores + 4 * first * PAGE,
                4 * PAGE,
            )
            for query in range(first, first + count):
                row = query // group
                place = position + row
                low = 0 if window == 0 else max(0, place - window + 1 - start)
                selected = field(call, _SELECTED)
                if selected:
                    selected += (field(work, 0) + row) * field(call, _KNOWN) + start
                weigh(
                    scores + 4 * query * PAGE,
                    low,
                    min(PAGE, place + 1 - start),
                    selected,
                    softcap,
                    state + 8 * query,
                    sums + 4 * query * v_line,
                    v_line,
                )
            product(
                half,
                0,
                count,
                scores + 4 * first * PAGE,
                4 * PAGE,
                field(call, _VALUES) + width * block * v_line * PAGE,
                v_line,
                PAGE,
                sums + 4 * first * v_line,
                4 * v_line,
            )

    return run


@kernel
def begin(call: int, work: int, head: int, memory: int) -> None:
    """The queries of a piece of work, scaled and laid side by side."""
    first, rows = field(work, 0), field(work, 1)
    k_width = field(call, _K_WIDTH)
    group = field(call, _HEADS) // field(call, _KV_HEADS)
    scale = splat(real_field(call, _SCALE))
    for row in range(rows):
        q = field(call, _Q) + (first + row) * field(call, _Q_STRIDE) + 4 * head * group * k_width
        out = memory + 4 * row * group * k_width
        for start in range(0, group * k_width, 16):
            count = min(16, group * k_width - start)
            store_first(out + 4 * start, multiply(load_first(q + 4 * start, count), scale), count)


@kernel
def leave(call: int, work: int, head: int, span: int, state: int, sums: int) -> None:
    """The results of all queries, as number `span` of their rows."""
    first, rows = field(work, 0), field(work, 1)
    heads, v_line = field(call, _HEADS), field(call, _V_LINE)
    group = heads // field(call, _KV_HEADS)
    line = 4 * (v_line + 16)
    partial, spans = field(field(call, _PARTIAL), 0), field(field(call, _SPANS), 0)
    for query in range(rows * group):
        row = first + query // group
        out = partial + line * ((row * spans + span) * heads + head * group + query % group)
        for column in range(0, v_line, 16):
            store(out + 4 * column, load(sums + 4 * (query * v_line + column)))
        store_float(out + 4 * v_line, load_float(state + 8 * query))
        store_float(out + 4 * v_line + 4, load_float(state + 8 * query + 4))


def attend(stored: int, call: int, item: int, memory: int) -> None:
    """One item of `Attend`; for kernels, with `stored` constant."""
    raise NotImplementedError


@overload(attend, prefer_literal=True)
def _attend(stored: Any, call: Any, item: Any, memory: Any) -> Any:
    if not isinstance(stored, types.IntegerLiteral):
        return None
    half = stored.literal_value

    def run(stored: Any, call: Any, item: Any, memory: Any) -> Any:
        kv_heads = field(call, _KV_HEADS)
        work, head = field(field(call, _WORKS), 0) + 8 * WORK_WORDS * (item // kv_heads), item % kv_heads
        rows, position, first, last = field(work, 1), field(work, 2), field(work, 4), field(work, 5)
        queries = rows * (field(call, _HEADS) // kv_heads)
        v_line, window = field(call, _V_LINE), field(call, _WINDOW)
        sums = memory + 4 * queries * (field(call, _K_WIDTH) + PAGE)
        state = sums + 4 * queries * v_line
        all_sums = state + 8 * queries
        all_state = all_sums + 4 * queries * v_line
        begin(call, work, head, memory)
        apart = field(work, 6)
        if not apart:
            clear(all_state, all_sums, queries, v_line)
        for span in range(first, last):
            clear(state, sums, queries, v_line)
            pages_of_span(half, call, work, head, span, memory)
            if apart:
                leave(call, work, head, span - field(work, 7), state, sums)
                continue
            start = span * SPAN * PAGE
            seeing, end = rows_that_see(start, start + SPAN * PAGE, position, rows, window)
            group = queries // rows
            for query in range(seeing * group, end * group):
                joined(
                    all_state + 8 * query,
                    all_sums + 4 * query * v_line,
                    state + 8 * query,
                    sums + 4 * query * v_line,
                    v_line,
                )
        if not apart:
            leave(call, work, head, 0, all_state, all_sums)

    return run


@Kernel
def _attend_floats(call: int, item: int, scratch: int) -> None:
    attend(0, call, item, scratch)


@Kernel
def _attend_half_floats(call: int, item: int, scratch: int) -> None:
    attend(1, call, item, scratch)


ATTEND_KERNELS: Final = (_attend_floats, _attend_half_floats)
"""For pages of floats and of half floats."""

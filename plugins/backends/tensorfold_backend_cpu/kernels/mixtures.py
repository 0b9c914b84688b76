"""Mixtures of experts: places are laid out by what rows chose, and runs of them are multiplied, each by its own matrix.

How many rows an expert gets is known only when a Step runs. So a product has items for all that could be chosen, and those
of what was not end at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorfold_backend_cpu.kernels.calls import WORDS, Call, done_by, numbers
from tensorfold_backend_cpu.kernels.compiling import kernel
from tensorfold_backend_cpu.kernels.linear import AffineLinear, FloatLinear, Product
from tensorfold_backend_cpu.kernels.running import invoke
from tensorfold_backend_cpu.kernels.simd import field, load, load_int, set_field, store, store_int

__all__ = ["RUN_WORDS", "Arrange", "Grouped", "arrange", "grouped"]

RUN_WORDS: Final = 3
"""Of a run of rows: its expert, its first row, and its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrange(Call):
    """Rows and ranks in the order of the experts that they chose, those of one expert in their own order; one item."""

    ids: int
    """`[pairs]`, 32 bits."""
    pairs: int
    k: int
    experts: int
    sources: int
    """`[pairs]`, 32 bits: the row at each place."""
    places: int
    """`[pairs]`, 32 bits: the place of each row and rank."""
    runs: int
    """`[most, RUN_WORDS]` words; those behind the last run have no rows."""
    most: int


(_A_IDS, _PAIRS, _A_K, _A_EXPERTS, _SOURCES, _PLACES, _A_RUNS, _MOST) = numbers(Arrange)


@kernel
def expert_of(ids: int, pair: int, experts: int) -> int:
    """What a row chose. A number that no expert has, which choosing never gives, must not lead elsewhere in memory."""
    expert: int = load_int(ids + 4 * pair)
    return min(max(expert, 0), experts - 1)


@done_by(Arrange)
def arrange(call: int, item: int, scratch: int) -> None:
    """The item of `Arrange`."""
    ids, pairs, k, experts = field(call, _A_IDS), field(call, _PAIRS), field(call, _A_K), field(call, _A_EXPERTS)
    sources, places = field(call, _SOURCES), field(call, _PLACES)
    runs, most = field(call, _A_RUNS), field(call, _MOST)
    for expert in range(experts):
        set_field(scratch, expert, 0)
    for pair in range(pairs):
        expert = expert_of(ids, pair, experts)
        set_field(scratch, expert, field(scratch, expert) + 1)
    first = run = 0
    for expert in range(experts):
        rows = field(scratch, expert)
        if rows:
            set_field(runs, RUN_WORDS * run, expert)
            set_field(runs, RUN_WORDS * run + 1, first)
            set_field(runs, RUN_WORDS * run + 2, rows)
            run += 1
        set_field(scratch, expert, first)
        first += rows
    for empty in range(run, most):
        set_field(runs, RUN_WORDS * empty + 2, 0)
    for pair in range(pairs):
        expert = expert_of(ids, pair, experts)
        place = field(scratch, expert)
        set_field(scratch, expert, place + 1)
        store_int(sources + 4 * place, pair // k)
        store_int(places + 4 * pair, place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped(Call):
    """Each run of rows times its own matrix. An item is one of a run's product, by the kernel of that."""

    lines: int
    """`[experts, WORDS]` words: products of rows that are nowhere yet."""
    runs: int
    """As in `Arrange`."""
    run_items: int
    """Of a run at most."""
    row_items: int
    """Parts into which a run's rows are divided at most."""
    rows_an_item: int
    """At least."""
    panels_an_item: int
    x: int
    """Rows of floats; for matrices that take integers, the six words of a target."""
    x_stride: int
    """0: it is a target."""
    out: int
    out_stride: int


(_LINES, _RUNS, _RUN_ITEMS, _ROW_ITEMS, _LEAST, _PANELS_AN_ITEM, _X, _X_STRIDE, _OUT, _OUT_STRIDE) = numbers(Grouped)

(_P_ROWS, _P_ROWS_AN_ITEM, _P_PANELS, _P_PANELS_AN_ITEM, _, _, _, _, _P_OUT, _P_OUT_STRIDE) = numbers(Product)
_P_TARGET: Final = numbers(AffineLinear)[len(numbers(Product))]
_P_X: Final = numbers(FloatLinear)[len(numbers(Product))]
_P_X_STRIDE: Final = _P_X + 1
_LINE: Final = 8 * WORDS
_TARGET_WORDS: Final = 64
"""Bytes of a target's words, up to a whole cache line."""


@done_by(Grouped)
def grouped(call: int, item: int, scratch: int) -> None:
    """One item of `Grouped`."""
    items = field(call, _RUN_ITEMS)
    run, part = field(call, _RUNS) + 8 * RUN_WORDS * (item // items), item % items
    rows = field(run, 2)
    if not rows:
        return
    known = field(call, _LINES) + _LINE * field(run, 0)
    parts = field(call, _ROW_ITEMS)
    rows_an_item = max(field(call, _LEAST), (rows + parts - 1) // parts)
    panels = field(call, _PANELS_AN_ITEM)
    row_items = (rows + rows_an_item - 1) // rows_an_item
    if part >= row_items * ((field(known, _P_PANELS) + panels - 1) // panels):
        return
    for start in range(0, _LINE, 64):
        store(scratch + start, load(known + start))
    first = field(run, 1)
    set_field(scratch, _P_ROWS, rows)
    set_field(scratch, _P_ROWS_AN_ITEM, rows_an_item)
    set_field(scratch, _P_PANELS_AN_ITEM, panels)
    # A part of a matrix begins behind the others' columns.
    stride = field(call, _OUT_STRIDE)
    set_field(scratch, _P_OUT, field(scratch, _P_OUT) + field(call, _OUT) + first * stride)
    set_field(scratch, _P_OUT_STRIDE, stride)
    x, x_stride = field(call, _X), field(call, _X_STRIDE)
    if x_stride:
        set_field(scratch, _P_X, x + first * x_stride)
        set_field(scratch, _P_X_STRIDE, x_stride)
    else:
        target = scratch + _LINE
        wide, narrow = field(x, 4), field(x, 5)
        set_field(target, 0, field(x, 0) + first * wide)
        for number in range(1, 4):
            set_field(target, number, field(x, number) + first * narrow)
        set_field(target, 4, wide)
        set_field(target, 5, narrow)
        set_field(scratch, _P_TARGET, target)
    invoke(field(scratch, 0), scratch, part, scratch + _LINE + _TARGET_WORDS)

"""Mixtures of experts: rows choose, their places are laid out by what they chose, and runs of them are multiplied.

How many rows an expert gets is known only when a Step runs. So a product has items for all that could be chosen, and those
of what was not end at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorfold_backend_cpu.kernels.calls import WORDS, Call, done_by, numbers
from tensorfold_backend_cpu.kernels.compiling import kernel, real
from tensorfold_backend_cpu.kernels.lanes import put, some
from tensorfold_backend_cpu.kernels.linear import AffineLinear, FloatLinear, Product
from tensorfold_backend_cpu.kernels.simd import (
    add,
    between,
    divide,
    exp,
    field,
    invoke,
    largest_lane,
    load,
    load_float,
    load_int,
    maximum,
    real_field,
    set_field,
    sigmoid,
    splat,
    store,
    store_float,
    store_int,
    subtract,
    sum_lanes,
)
from tensorfold_backend_cpu.kernels.softmax import LOWEST

__all__ = ["RUN_WORDS", "Arrange", "Choose", "Grouped", "arrange", "choose", "grouped"]

RUN_WORDS: Final = 3
"""Of a run of rows: its expert, its first row, and its rows."""

_ZERO = real(0.0)
_TINY = real(1e-20)
"""Added to what weights are divided by."""


# ---- choosing ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Choose(Call):
    """The best experts of a row and their weights, as `Router` has it; an item is a row."""

    logits: int
    logits_stride: int
    experts: int
    bias: int
    """Floats, added to the scores that choose; 0: none."""
    softmax: int
    """1: scores are a softmax of the logits; 0: their logistic function."""
    k: int
    groups: int
    keep_groups: int
    renorm: int
    scale: float
    expert_scale: int
    """Floats; 0: none."""
    ids: int
    """`[R, k]`, 32 bits."""
    weights: int
    """`[R, k]`."""


(
    _LOGITS,
    _LOGITS_STRIDE,
    _EXPERTS,
    _BIAS,
    _SOFTMAX,
    _K,
    _GROUPS,
    _KEEP_GROUPS,
    _RENORM,
    _SCALE,
    _EXPERT_SCALE,
    _IDS,
    _WEIGHTS,
) = numbers(Choose)


@kernel
def scored(logits: int, experts: int, softmax: int, scores: int) -> None:
    """One row's scores."""
    if not softmax:
        for start in range(0, experts, 16):
            put(scores + 4 * start, sigmoid(some(logits + 4 * start, experts - start)), experts - start)
        return
    top = splat(LOWEST)
    for start in range(0, experts, 16):
        top = maximum(between(some(logits + 4 * start, experts - start), 0, experts - start, LOWEST), top)
    highest = splat(largest_lane(top))
    total = splat(_ZERO)
    for start in range(0, experts, 16):
        left = experts - start
        powers = between(exp(subtract(some(logits + 4 * start, left), highest)), 0, left, _ZERO)
        put(scores + 4 * start, powers, left)
        total = add(total, powers)
    whole = splat(sum_lanes(total))
    for start in range(0, experts, 16):
        put(scores + 4 * start, divide(some(scores + 4 * start, experts - start), whole), experts - start)


@kernel
def within_groups(choosing: int, experts: int, groups: int, keep: int, worth: int) -> None:
    """Only experts of the `keep` best groups may be chosen; a group counts by the sum of its two best.

    Args:
        choosing: floats by which experts are chosen; those of the other groups become minus infinity.
        worth: memory for a float a group.
    """
    size = experts // groups
    for group in range(groups):
        first = second = LOWEST
        for number in range(group * size, group * size + size):
            value = load_float(choosing + 4 * number)
            if value > first:
                second = first
                first = value
            elif value > second:
                second = value
        store_float(worth + 4 * group, first + second if size > 1 else first)
    for group in range(groups):
        own = load_float(worth + 4 * group)
        better = 0
        for other in range(groups):
            value = load_float(worth + 4 * other)
            if value > own or (value == own and other < group):
                better += 1
        if better >= keep:
            for number in range(group * size, group * size + size):
                store_float(choosing + 4 * number, LOWEST)


@kernel
def best(choosing: int, experts: int, k: int, ids: int, values: int) -> None:
    """The numbers of the k largest, the best first and the lower of equal ones first; always k different ones.

    Args:
        ids: 32-bit numbers.
        values: memory for k floats.
    """
    known = 0
    for number in range(experts):
        value = load_float(choosing + 4 * number)
        if known == k and not value > load_float(values + 4 * (k - 1)):
            continue
        place = known if known < k else k - 1
        while place > 0 and value > load_float(values + 4 * (place - 1)):
            store_float(values + 4 * place, load_float(values + 4 * (place - 1)))
            store_int(ids + 4 * place, load_int(ids + 4 * (place - 1)))
            place -= 1
        store_float(values + 4 * place, value)
        store_int(ids + 4 * place, number)
        known = min(k, known + 1)


@done_by(Choose)
def choose(call: int, row: int, scratch: int) -> None:
    """One item of `Choose`."""
    experts, k, bias = field(call, _EXPERTS), field(call, _K), field(call, _BIAS)
    groups, keep = field(call, _GROUPS), field(call, _KEEP_GROUPS)
    room = 4 * ((experts + 15) // 16 * 16)
    scores, choosing = scratch, scratch
    scored(field(call, _LOGITS) + row * field(call, _LOGITS_STRIDE), experts, field(call, _SOFTMAX), scores)
    if bias or keep < groups:
        choosing = scratch + room
        for start in range(0, experts, 16):
            left = experts - start
            score = some(scores + 4 * start, left)
            put(choosing + 4 * start, add(score, some(bias + 4 * start, left)) if bias else score, left)
        if keep < groups:
            within_groups(choosing, experts, groups, keep, scratch + 2 * room)
    ids, weights = field(call, _IDS) + 4 * k * row, field(call, _WEIGHTS) + 4 * k * row
    # What is chosen by comes first, and what is weighed by takes its place.
    best(choosing, experts, k, ids, weights)
    total = _ZERO
    for rank in range(k):
        weight = load_float(scores + 4 * load_int(ids + 4 * rank))
        store_float(weights + 4 * rank, weight)
        total += weight
    scale, each = real_field(call, _SCALE), field(call, _EXPERT_SCALE)
    for rank in range(k):
        weight = load_float(weights + 4 * rank)
        if field(call, _RENORM):
            weight /= total + _TINY
        weight *= scale
        if each:
            weight *= load_float(each + 4 * load_int(ids + 4 * rank))
        store_float(weights + 4 * rank, weight)


# ---- laying out -------------------------------------------------------------------------------------------------


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


@done_by(Arrange)
def arrange(call: int, item: int, scratch: int) -> None:
    """The item of `Arrange`."""
    ids, pairs, k, experts = field(call, _A_IDS), field(call, _PAIRS), field(call, _A_K), field(call, _A_EXPERTS)
    sources, places = field(call, _SOURCES), field(call, _PLACES)
    runs, most = field(call, _A_RUNS), field(call, _MOST)
    for expert in range(experts):
        set_field(scratch, expert, 0)
    for pair in range(pairs):
        expert = load_int(ids + 4 * pair)
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
        expert = load_int(ids + 4 * pair)
        place = field(scratch, expert)
        set_field(scratch, expert, place + 1)
        store_int(sources + 4 * place, pair // k)
        store_int(places + 4 * pair, place)


# ---- multiplying ------------------------------------------------------------------------------------------------


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

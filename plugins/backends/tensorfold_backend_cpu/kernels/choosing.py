"""Choosing experts: a row's scores, the groups that stay, the best of what is left, and what each weighs."""

from __future__ import annotations

from dataclasses import dataclass

from tensorfold_backend_cpu.kernels.calls import Call, done_by, numbers
from tensorfold_backend_cpu.kernels.compiling import kernel, real
from tensorfold_backend_cpu.kernels.lanes import put, some
from tensorfold_backend_cpu.kernels.simd import (
    add,
    between,
    divide,
    exp,
    field,
    largest_lane,
    load_float,
    load_int,
    maximum,
    real_field,
    sigmoid,
    splat,
    store_float,
    store_int,
    subtract,
    sum_lanes,
)
from tensorfold_backend_cpu.kernels.softmax import LOWEST

__all__ = ["Choose", "choose"]

_ZERO = real(0.0)
_TINY = real(1e-20)
"""Added to what weights are divided by."""


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

"""Recurrences over a whole chunk as products of matrices: blocks of rows at once, the state from block to block.

Gated delta rule: the WY form of Yang et al., "Gated Delta Networks" (2024) and, with a decay for each channel, "Kimi
Linear" (2025). State space duality: Dao and Gu, "Transformers are SSMs" (2024). Decays enter as exponents of differences
that are never positive, so that nothing overflows however strong they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

__all__ = ["delta_rule", "state_space"]

_ROWS = 64
"""Rows of a block."""
_ROWS_BY_CHANNEL = 16
"""The same where every channel decays by itself: a block then takes rows^2 numbers for each channel."""


def delta_rule(state: mx.array, inputs: Sequence[mx.array]) -> tuple[mx.array, mx.array]:
    """The delta rule over all rows of one sequence.

    Args:
        state: `[hk, s, dk, dv]` before the first row.
        inputs: as `delta_scan` has them: queries, keys, values, logs of decays, strengths.

    Returns:
        Outputs `[R, hk, s, dv]`, and the state after the last row.
    """
    rows = inputs[0].shape[0]
    by_channel = inputs[3].shape[-1] > 1
    block = _block(rows, _ROWS_BY_CHANNEL if by_channel else _ROWS)
    queries, keys, values, fading, strength = (_in_blocks(each, block) for each in inputs)
    faded = mx.cumsum(fading, -2)
    key_products, query_products = _decayed_products(queries, keys, faded, by_channel=by_channel)
    # A row's change depends on those before it: (1 + L) changes = strength (values - what the state recalls).
    solved = _inverse(mx.tril(key_products * strength, -1))
    entering = mx.exp(faded)
    changes = solved @ (strength * values)
    recalling = solved @ (strength * keys * entering)
    reading = queries * entering
    within = mx.tril(query_products)
    last = faded[..., -1:, :]
    writing = (keys * mx.exp(last - faded)).swapaxes(-1, -2)
    surviving = mx.exp(last).swapaxes(-1, -2)
    outputs: list[mx.array] = []
    for number in range(queries.shape[0]):
        change = changes[number] - recalling[number] @ state
        outputs.append(reading[number] @ state + within[number] @ change)
        state = surviving[number] * state + writing[number] @ change
    return _in_rows(mx.stack(outputs), rows), state


def state_space(state: mx.array, inputs: Sequence[mx.array]) -> tuple[mx.array, mx.array]:
    """State space duality over all rows of one sequence.

    Args:
        state: `[g, s, p, n]` before the first row.
        inputs: as `ssd_scan` has them: logs of decays, what enters, where it is written, what is read.

    Returns:
        Outputs `[R, g, s, p]`, and the state after the last row.
    """
    rows = inputs[0].shape[0]
    block = _block(rows, _ROWS)
    fading, entering = (_in_blocks(each[..., 0], block) for each in inputs[:2])
    written, read = (_in_blocks(each[..., 0, :], block) for each in inputs[2:])
    faded = mx.cumsum(fading, -2)
    within = mx.tril(read @ written.swapaxes(-1, -2) * _differences(faded))
    last = faded[..., -1:, :]
    lasting = (entering * mx.exp(last - faded)).swapaxes(-1, -2) @ written
    passing, surviving = mx.exp(faded), mx.exp(last)
    own = within @ entering
    outputs: list[mx.array] = []
    for number in range(read.shape[0]):
        outputs.append(own[number] + passing[number] * (read[number] @ state.swapaxes(-1, -2)))
        state = surviving[number] * state + lasting[number]
    return _in_rows(mx.stack(outputs), rows), state


def _block(rows: int, most: int) -> int:
    """A power of two, for a chunk of few rows no more than they need."""
    return min(most, 1 << (rows - 1).bit_length())


def _in_blocks(x: mx.array, block: int) -> mx.array:
    """`[R, h, s, w]` to `[blocks, h, s, block, w]`; rows of zeros at the end change nothing and are not read."""
    filled = mx.pad(x, [(0, -x.shape[0] % block), (0, 0), (0, 0), (0, 0)])
    return mx.transpose(mx.unflatten(filled, 0, (-1, block)), (0, 2, 3, 1, 4))


def _in_rows(x: mx.array, rows: int) -> mx.array:
    """The way back."""
    return mx.flatten(mx.transpose(x, (0, 3, 1, 2, 4)), 0, 1)[:rows]


def _differences(faded: mx.array) -> mx.array:
    """`[..., C, 1]` to `[..., C, C]`: what is left in row i of what row j wrote; 0 for what comes later."""
    block = faded.shape[-2]
    later = mx.triu(mx.full((block, block), -mx.inf), 1)
    return mx.exp(mx.minimum(faded - faded.swapaxes(-1, -2), 0.0) + later)


def _decayed_products(
    queries: mx.array, keys: mx.array, faded: mx.array, *, by_channel: bool
) -> tuple[mx.array, mx.array]:
    """Keys and queries of row i with keys of row j, `[..., C, C]`, by what is left of those."""
    if not by_channel:
        left, turned = _differences(faded), keys.swapaxes(-1, -2)
        return keys @ turned * left, queries @ turned * left
    left = mx.exp(mx.minimum(faded[..., :, None, :] - faded[..., None, :, :], 0.0)) * keys[..., None, :, :]
    return mx.sum(keys[..., :, None, :] * left, -1), mx.sum(queries[..., :, None, :] * left, -1)


def _inverse(lower: mx.array) -> mx.array:
    """Of 1 + L, L strictly lower `[..., C, C]`: the inverses of two neighbouring blocks give that of both together."""
    size = lower.shape[-1]
    solved = mx.eye(size)
    index = mx.arange(size)
    half = 1
    while half < size:
        pair, second = index // (2 * half), (index // half) % 2
        between = mx.logical_and(pair[:, None] == pair, second[:, None] > second)
        solved = solved - solved @ mx.where(between, lower, 0.0) @ solved
        half *= 2
    return solved

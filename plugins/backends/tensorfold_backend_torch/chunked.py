"""Recurrences over a whole chunk as products of matrices: blocks of rows at once, the state from block to block.

Gated delta rule: the WY form of Yang et al., "Gated Delta Networks" (2024) and, with a decay for each channel, "Kimi
Linear" (2025). State space duality: Dao and Gu, "Transformers are SSMs" (2024). Decays enter as exponents of differences
that are never positive, so that nothing overflows however strong they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["delta_rule", "state_space"]

_ROWS: Final = 64
"""Rows of a block."""
_ROWS_BY_CHANNEL: Final = 16
"""The same where every channel decays by itself: a block then takes rows^2 numbers for each channel."""


def delta_rule(state: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
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
    faded = fading.cumsum(-2)
    key_products, query_products = _decayed_products(queries, keys, faded, by_channel=by_channel)
    entering = faded.exp()
    # A row's change depends on those before it: (1 + L) changes = strength (values - what the state recalls).
    wanted = torch.cat((strength * values, strength * keys * entering), -1)
    lower = (key_products * strength).tril(-1)
    # The ones of the diagonal are not read.
    solve = cast("Callable[..., Tensor]", torch.linalg.solve_triangular)  # pyright: ignore[reportUnknownMemberType]
    solved = solve(lower, wanted, upper=False, unitriangular=True)
    changes, recalling = solved[..., : values.shape[-1]], solved[..., values.shape[-1] :]
    reading, within = queries * entering, query_products.tril()
    last = faded[..., -1:, :]
    writing = (keys * (last - faded).exp()).transpose(-1, -2)
    surviving = last.exp().transpose(-1, -2)
    outputs: list[Tensor] = []
    for number in range(queries.shape[0]):
        change = changes[number] - recalling[number] @ state
        outputs.append(reading[number] @ state + within[number] @ change)
        state = surviving[number] * state + writing[number] @ change
    return _in_rows(torch.stack(outputs), rows), state


def state_space(state: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
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
    faded = fading.cumsum(-2)
    within = (read @ written.transpose(-1, -2) * _differences(faded)).tril()
    last = faded[..., -1:, :]
    lasting = (entering * (last - faded).exp()).transpose(-1, -2) @ written
    passing, surviving = faded.exp(), last.exp()
    own = within @ entering
    outputs: list[Tensor] = []
    for number in range(read.shape[0]):
        outputs.append(own[number] + passing[number] * (read[number] @ state.transpose(-1, -2)))
        state = surviving[number] * state + lasting[number]
    return _in_rows(torch.stack(outputs), rows), state


def _block(rows: int, most: int) -> int:
    """A power of two, for a chunk of few rows no more than they need."""
    return min(most, 1 << (rows - 1).bit_length())


def _in_blocks(x: Tensor, block: int) -> Tensor:
    """`[R, h, s, w]` to `[blocks, h, s, block, w]`; rows of zeros at the end change nothing and are not read."""
    filled = F.pad(x, (0, 0, 0, 0, 0, 0, 0, -x.shape[0] % block))
    return filled.view(-1, block, *x.shape[1:]).permute(0, 2, 3, 1, 4)


def _in_rows(x: Tensor, rows: int) -> Tensor:
    """The way back."""
    return x.permute(0, 3, 1, 2, 4).flatten(0, 1)[:rows]


def _differences(faded: Tensor) -> Tensor:
    """`[..., C, 1]` to `[..., C, C]`: what is left in row i of what row j wrote; 0 for what comes later."""
    return (faded - faded.transpose(-1, -2)).clamp(max=0.0).exp().tril()


def _decayed_products(queries: Tensor, keys: Tensor, faded: Tensor, *, by_channel: bool) -> tuple[Tensor, Tensor]:
    """Keys and queries of row i with keys of row j, `[..., C, C]`, by what is left of those."""
    if not by_channel:
        left, turned = _differences(faded), keys.transpose(-1, -2)
        return keys @ turned * left, queries @ turned * left
    decays = (faded[..., :, None, :] - faded[..., None, :, :]).clamp(max=0.0).exp()
    left = decays * keys[..., None, :, :]
    return (keys[..., :, None, :] * left).sum(-1), (queries[..., :, None, :] * left).sum(-1)

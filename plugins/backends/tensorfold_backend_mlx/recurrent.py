"""Recurrences row by row, with one product for each sum."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from tensorfold_backend_mlx.pure import MlxPureOps

__all__ = ["RowsRecurrentOps"]


class RowsRecurrentOps(MlxPureOps):
    """A row's sums are products of a vector and its own sequence's state, so that nobody else has a part in them."""

    def delta_turn(self, state: mx.array, inputs: Sequence[mx.array]) -> tuple[mx.array, mx.array]:
        query, key, value, fade, rate = inputs
        faded = state * fade[..., None]
        recalled = mx.matmul(key[..., None, :], faded)[..., 0, :]
        change = (value - recalled) * rate
        after = faded + key[..., None] * change[..., None, :]
        return mx.matmul(query[..., None, :], after)[..., 0, :], after

    def ssd_turn(self, state: mx.array, inputs: Sequence[mx.array]) -> tuple[mx.array, mx.array]:
        fade, entry, into, out = inputs
        after = state * fade + entry * into
        return mx.matmul(after, out.swapaxes(-1, -2))[..., 0], after

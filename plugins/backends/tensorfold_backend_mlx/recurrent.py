"""Recurrences: row by row with one product for each sum, or block by block over a chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx

from tensorfold.contracts.step import Step
from tensorfold.errors import BackendError
from tensorfold_backend_mlx.chunked import delta_rule, state_space
from tensorfold_backend_mlx.pure import MlxPureOps

__all__ = ["ChunkRecurrentOps", "RowsRecurrentOps"]


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


@dataclass(frozen=True, slots=True, eq=False)
class OpenChunk:
    """A chunk's rows, which are kept all together."""

    after: mx.array
    rows: int

    def kept(self, rows: int) -> mx.array:
        """The state after them.

        Raises:
            BackendError: only some are to be kept.
        """
        if rows != self.rows:
            raise BackendError(f"of a chunk of {self.rows} rows, {rows} cannot be kept: a chunk is committed whole")
        return self.after


class ChunkRecurrentOps(MlxPureOps):
    """The sequence of the chunk alone, many rows at a time."""

    def delta_scan(
        self, step: Step[mx.array], name: str, shape: tuple[int, ...], inputs: Sequence[mx.array]
    ) -> mx.array:
        return self._blockwise(step, name, shape, delta_rule, inputs)

    def ssd_scan(self, step: Step[mx.array], name: str, shape: tuple[int, ...], inputs: Sequence[mx.array]) -> mx.array:
        return self._blockwise(step, name, shape, state_space, inputs)

    def _blockwise(
        self,
        step: Step[mx.array],
        name: str,
        shape: tuple[int, ...],
        scan: Callable[[mx.array, Sequence[mx.array]], tuple[mx.array, mx.array]],
        inputs: Sequence[mx.array],
    ) -> mx.array:
        [segment] = step.segments
        committed = self.store.committed(name, self._slots(step))
        outputs, after = scan(mx.reshape(committed, shape), inputs)
        self.store.leave_open(segment.slot, name, OpenChunk(after, outputs.shape[0]))
        return outputs

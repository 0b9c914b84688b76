"""Recurrences over the sequence of a chunk, many rows at a time, for backends whose library has products for that.

How a block of rows is computed is the backend's: one solves triangular systems, another has no solver on its device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.composed import ComposedOps
from tensorfold.contracts.arrays import A
from tensorfold.contracts.step import Step
from tensorfold.errors import BackendError

__all__ = ["ChunkRecurrentOps"]


@dataclass(frozen=True, slots=True, eq=False)
class _OpenChunk(Generic[A]):
    """A chunk's rows, which are kept all together."""

    after: A
    rows: int

    def kept(self, rows: int) -> A:
        """The state after them.

        Raises:
            BackendError: only some are to be kept.
        """
        if rows != self.rows:
            raise BackendError(f"of a chunk of {self.rows} rows, {rows} cannot be kept: a chunk is committed whole")
        return self.after


class ChunkRecurrentOps(ComposedOps[A], ABC):
    """`gated_delta` and `ssd` of chunks."""

    @abstractmethod
    def delta_chunk(self, state: A, inputs: Sequence[A]) -> tuple[A, A]:
        """The delta rule over all rows: state `[hk, s, dk, dv]` and inputs as `delta_scan` has them, to outputs
        `[R, hk, s, dv]` and the state after the last row."""

    @abstractmethod
    def ssd_chunk(self, state: A, inputs: Sequence[A]) -> tuple[A, A]:
        """State space duality over all rows: state `[g, s, p, n]` and inputs as `ssd_scan` has them, to outputs
        `[R, g, s, p]` and the state after the last row."""

    def delta_scan(self, step: Step[A], name: str, shape: tuple[int, ...], inputs: Sequence[A]) -> A:
        return self._whole(step, name, shape, self.delta_chunk, inputs)

    def ssd_scan(self, step: Step[A], name: str, shape: tuple[int, ...], inputs: Sequence[A]) -> A:
        return self._whole(step, name, shape, self.ssd_chunk, inputs)

    def _whole(
        self,
        step: Step[A],
        name: str,
        shape: tuple[int, ...],
        scan: Callable[[A, Sequence[A]], tuple[A, A]],
        inputs: Sequence[A],
    ) -> A:
        [segment] = step.segments
        committed = self.store.committed(name, self._slots(step))
        outputs, after = scan(self.p.reshape(committed, shape), inputs)
        self.store.leave_open(segment.slot, name, _OpenChunk(after, outputs.shape[0]))
        return outputs

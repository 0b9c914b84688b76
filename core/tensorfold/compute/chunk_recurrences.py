"""Recurrences over the sequence of a chunk, many rows at a time, for backends whose library has products for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.block_recurrences import BlockPrimitives, BlockRecurrences
from tensorfold.compute.composed import ComposedOps
from tensorfold.compute.store import ComposedStore
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


class ChunkRecurrentOps(ComposedOps[A]):
    """`gated_delta` and `ssd` of chunks."""

    def __init__(self, primitives: BlockPrimitives[A], store: ComposedStore[A]) -> None:
        super().__init__(primitives, store)
        self._blocks = BlockRecurrences(primitives)

    def delta_scan(self, step: Step[A], name: str, shape: tuple[int, ...], inputs: Sequence[A]) -> A:
        return self._whole(step, name, shape, self._blocks.delta_rule, inputs)

    def ssd_scan(self, step: Step[A], name: str, shape: tuple[int, ...], inputs: Sequence[A]) -> A:
        return self._whole(step, name, shape, self._blocks.state_space, inputs)

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

"""Recurrences over the sequence of a chunk, many rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from tensorfold.compute.composed import ComposedOps
from tensorfold.contracts.step import Step
from tensorfold.errors import BackendError
from tensorfold_backend_torch.chunked import delta_rule, state_space

__all__ = ["ChunkRecurrentOps"]

Scan: TypeAlias = Callable[[Tensor, Sequence[Tensor]], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True, eq=False)
class _OpenChunk:
    """A chunk's rows, which are kept all together."""

    after: Tensor
    rows: int

    def kept(self, rows: int) -> Tensor:
        """The state after them.

        Raises:
            BackendError: only some are to be kept.
        """
        if rows != self.rows:
            raise BackendError(f"of a chunk of {self.rows} rows, {rows} cannot be kept: a chunk is committed whole")
        return self.after


class ChunkRecurrentOps(ComposedOps[Tensor]):
    """`gated_delta` and `ssd` of chunks."""

    def delta_scan(self, step: Step[Tensor], name: str, shape: tuple[int, ...], inputs: Sequence[Tensor]) -> Tensor:
        return self._blockwise(step, name, shape, delta_rule, inputs)

    def ssd_scan(self, step: Step[Tensor], name: str, shape: tuple[int, ...], inputs: Sequence[Tensor]) -> Tensor:
        return self._blockwise(step, name, shape, state_space, inputs)

    def _blockwise(
        self, step: Step[Tensor], name: str, shape: tuple[int, ...], scan: Scan, inputs: Sequence[Tensor]
    ) -> Tensor:
        [segment] = step.segments
        committed = self.store.committed(name, self._slots(step))
        outputs, after = scan(committed.reshape(shape), inputs)
        self.store.leave_open(segment.slot, name, _OpenChunk(after, outputs.shape[0]))
        return outputs

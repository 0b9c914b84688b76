"""The calls of attention over pages, for the operation and for whole layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.states import TableKey
from tensorfold.errors import BackendError
from tensorfold_backend_cpu.cells import AttentionCell, AttentionShape, Cells
from tensorfold_backend_cpu.kernels.attention import Attend, scratch_bytes
from tensorfold_backend_cpu.kernels.joining import Join
from tensorfold_backend_cpu.places import Forms, Place
from tensorfold_backend_cpu.state import KeyPool
from tensorfold_backend_cpu.threads import SCRATCH_BYTES

__all__ = ["Attending"]


@dataclass(frozen=True, slots=True, eq=False)
class Attending:
    """Query heads over one pool of pages."""

    pool: KeyPool
    heads: int
    cell: AttentionCell
    """Says of a Step who reads what."""

    @staticmethod
    def over(pool: KeyPool, heads: int, cells: Cells) -> Attending:
        """So many query heads over a pool.

        Raises:
            BackendError: heads are too wide, or too many share a key.
        """
        shape = AttentionShape(TableKey.of(pool.spec), heads, pool.spec.heads, pool.v_line)
        needed = scratch_bytes(shape.tile, heads // pool.spec.heads, pool.spec.k_dim, pool.v_line)
        if needed > SCRATCH_BYTES:
            raise BackendError(
                f"attention of {heads} query heads over {pool.spec.heads} key heads, {pool.spec.k_dim} and"
                f" {pool.spec.v_dim} wide, needs {needed} bytes of scratch, and a thread has {SCRATCH_BYTES}"
            )
        return Attending(pool, heads, cells.attention(shape))

    def read(self, q: Place, scale: float, softcap: float | None, selected: NDArray[np.uint8] | None = None) -> Attend:
        """Scores, weights and weighted values of every span. `selected` is `[R, positions]`."""
        pool, cell = self.pool, self.cell
        keys, values = pool.addresses
        return Attend(
            items=0,
            items_at=cell.items,
            q=q.address,
            q_stride=q.stride,
            heads=self.heads,
            kv_heads=pool.spec.heads,
            k_width=pool.spec.k_dim,
            v_line=pool.v_line,
            keys=keys,
            values=values,
            scale=float(scale),
            softcap=float(softcap or 0.0),
            window=pool.spec.window or 0,
            works=cell.works,
            partial=cell.partial,
            spans=cell.spans,
            selected=0 if selected is None else int(selected.ctypes.data),
            known=0 if selected is None else selected.shape[1],
            half=int(pool.half),
        )

    def join(self, rows: int, sinks: int, out: Forms) -> Join:
        """Spans to rows `[heads * v]`. `sinks` is the address of a logit for each head, or 0."""
        cell = self.cell
        return Join(
            items=rows,
            partial=cell.partial,
            spans=cell.spans,
            ranges=cell.ranges,
            heads=self.heads,
            v_width=self.pool.spec.v_dim,
            v_line=self.pool.v_line,
            sinks=sinks,
            **out.words(),
        )

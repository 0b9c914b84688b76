"""The operations: kernels where speed matters, the composed ones on the host elsewhere.

Both kinds of Step use the same operations, whose bits do not depend on how many rows there are.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.composed_attention import Selected
from tensorfold.contracts.ops import Selection
from tensorfold.contracts.states import PAGE
from tensorfold.contracts.step import Step
from tensorfold_backend_cpu.attending import Attending
from tensorfold_backend_cpu.hosted import ours
from tensorfold_backend_cpu.kernels.positions import WriteKeys
from tensorfold_backend_cpu.places import Forms
from tensorfold_backend_cpu.recurring import RecurringOps
from tensorfold_backend_cpu.rows import Rows, place

__all__ = ["CpuOps"]


class CpuOps(RecurringOps):
    """All operations over one store."""

    # ---- attention -------------------------------------------------------------------------------------------

    def attend(
        self,
        step: Step[Rows],
        name: str,
        q: Rows,
        k: Rows | None,
        v: Rows | None,
        *,
        scale: float,
        select: Selection | None = None,
        sinks: Rows | None = None,
        softcap: float | None = None,
    ) -> Rows:
        rows, heads, _ = q.shape
        pool = self.store.pool(name)
        attending = Attending.over(pool, heads, self.cells)
        attending.cell.refresh(step)
        if k is not None and v is not None:
            self._write(attending, k.floats(), v.floats())
        q = q.floats()
        selected = self._selected(step, select)
        self.machine.call(attending.read(place(q), scale, softcap, selected), q.owner, selected)
        out = Rows.new(self.machine, (rows, heads, pool.spec.v_dim))
        logits = 0 if sinks is None else sinks.address
        self.machine.call(attending.join(rows, logits, Forms(place(out))), None if sinks is None else sinks.owner)
        return out

    def _write(self, attending: Attending, k: Rows, v: Rows) -> None:
        """Put the rows' keys and values into their pages."""
        pool = attending.pool
        call = WriteKeys(
            items=k.shape[0],
            **pool.words(),
            pages=attending.cell.pages,
            k=k.address,
            k_stride=k.stride,
            v=v.address,
            v_stride=v.stride,
        )
        self.machine.call(call, k.owner, v.owner)

    def _selected(self, step: Step[Rows], select: Selection | None) -> NDArray[np.uint8] | None:
        """A byte for each row and position, to the end of the last page that a row of the Step reads."""
        if select is None:
            return None
        chosen = cast("Selected[NDArray[np.bool_]]", ours(select, Selected)).positions
        if chosen is None:
            return None
        wide = (int(step.host_positions.max()) // PAGE + 1) * PAGE
        known = chosen.shape[1]
        # What is behind the known positions goes with the last of them, as in the composed operation.
        return np.ascontiguousarray(chosen[:, np.minimum(np.arange(wide), known - 1)], np.uint8)

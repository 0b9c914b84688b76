"""Mixtures of experts: rows in the order of the experts that they chose, whose products are recorded together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.packing import DenseExperts
from tensorfold.contracts.handles import Activation, Experts
from tensorfold_backend_cpu.grouped import GroupedLinear, Runs
from tensorfold_backend_cpu.handles import CpuLinear
from tensorfold_backend_cpu.hosted import ours
from tensorfold_backend_cpu.pure import PureOps
from tensorfold_backend_cpu.rows import Rows

__all__ = ["CpuExperts", "MixingOps"]


class CpuExperts(DenseExperts[NDArray[Any]]):
    """Each expert's two matrices, and where all are stored alike, the two groups of them."""

    def __init__(
        self,
        up: Sequence[CpuLinear],
        down: Sequence[CpuLinear],
        *,
        act: Activation,
        gated: bool,
        limit: float | None,
    ) -> None:
        # To what is composed, a matrix is whatever this backend multiplies by.
        one_by_one = cast("tuple[Any, Any]", (tuple(up), tuple(down)))
        super().__init__(len(down), one_by_one[0], one_by_one[1], act, gated, limit)
        ups, downs = GroupedLinear.of(up), GroupedLinear.of(down)
        self.groups = None if ups is None or downs is None else (ups, downs)


class MixingOps(PureOps):
    """`experts`."""

    def experts(self, x: Rows, ids: Rows, weights: Rows, experts: Experts) -> Rows:
        packed = ours(experts, CpuExperts)
        if packed.groups is None:
            return super().experts(x, ids, weights, experts)
        up, down = packed.groups
        chosen = ids.values()
        rows, k = chosen.shape
        order = np.argsort(chosen, axis=None, kind="stable")
        runs = Runs.of(chosen.reshape(-1)[order])
        inner = up(self._taken(x.floats(), order // k), runs)
        opened = self.glu(inner, packed.act, packed.limit) if packed.gated else self.activate(inner, packed.act)
        # Back in the order of rows and ranks.
        outputs = self._taken(down(opened, runs), np.argsort(order, kind="stable"))
        return self.mix(weights, self.reshape(outputs, rows, k, -1))

    def _taken(self, x: Rows, index: NDArray[np.int64]) -> Rows:
        return self.rows(x, Rows.of(self.machine, index.astype(np.int32)))

"""Mixtures of experts: choosing, and rows in the order of the experts that they chose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.packing import DenseExperts
from tensorfold.contracts.handles import Activation, Experts, Router
from tensorfold.errors import BackendError
from tensorfold_backend_cpu.grouped import GroupedLinear, Runs
from tensorfold_backend_cpu.handles import CpuLinear
from tensorfold_backend_cpu.hosted import ours
from tensorfold_backend_cpu.kernels.choosing import Choose
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
    """`route` and `experts`."""

    def route(self, logits: Rows, router: Router, bias: Rows | None = None) -> tuple[Rows, Rows]:
        scores = logits.floats()
        rows, count = scores.shape
        if not router.k <= count // router.groups * router.keep_groups:
            raise BackendError(
                f"{router.k} of {count} experts cannot be chosen in {router.keep_groups} of {router.groups} groups"
            )
        ids, weights = (Rows.new(self.machine, (rows, router.k), kind) for kind in (np.int32, np.float32))
        added = None if bias is None else bias.packed()
        scale = router.expert_scale
        factors = None if scale is None else Rows.of(self.machine, np.asarray(scale, np.float32))
        call = Choose(
            items=rows,
            logits=scores.address,
            logits_stride=scores.stride,
            experts=count,
            bias=0 if added is None else added.address,
            softmax=int(router.score == "softmax"),
            k=router.k,
            groups=router.groups,
            keep_groups=router.keep_groups,
            renorm=int(router.renorm),
            scale=float(router.scale),
            expert_scale=0 if factors is None else factors.address,
            ids=ids.address,
            weights=weights.address,
        )
        self.machine.call(call, *(each.owner for each in (scores, added, factors) if each is not None))
        return ids, weights

    def experts(self, x: Rows, ids: Rows, weights: Rows, experts: Experts) -> Rows:
        packed = ours(experts, CpuExperts)
        if packed.groups is None:
            return super().experts(x, ids, weights, experts)
        up, down = packed.groups
        rows, k = ids.shape
        runs = Runs.of(self.machine, ids, packed.count)
        inner = up(self.rows(x.floats(), runs.sources), runs)
        opened = self.glu(inner, packed.act, packed.limit) if packed.gated else self.activate(inner, packed.act)
        # Back in the order of rows and ranks.
        outputs = self.rows(down(opened, runs), runs.places)
        return self.mix(weights, self.reshape(outputs, rows, k, -1))

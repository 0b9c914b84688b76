"""Mixtures of experts: choosing, and running what was chosen."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorfold.compute.composed_pure import PureOps, handle
from tensorfold.compute.packing import DenseExperts
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Experts, Router

__all__ = ["ExpertOps"]


class ExpertOps(PureOps[A]):
    """`route` and `experts`."""

    def route(self, logits: A, router: Router, bias: A | None = None) -> tuple[A, A]:
        wide = self.p.cast(logits, "real")
        scores = self.softmax(wide) if router.score == "softmax" else self.sigmoid(wide)
        choosing: A = scores if bias is None else scores + bias
        if router.keep_groups < router.groups:
            choosing = self._within_groups(choosing, router)
        ids: A = self.p.argsort(choosing)[:, : router.k]
        weights = self.p.take_along(scores, ids)
        if router.renorm:
            weights = self.p.divide(weights, self.p.sum(weights, -1)[:, None] + 1e-20)
        weights = weights * router.scale
        if router.expert_scale is not None:
            scale = self.p.array(np.asarray(router.expert_scale, dtype=np.float32))
            weights = weights * self.p.take(scale, ids)
        return ids, weights

    def _within_groups(self, choosing: A, router: Router) -> A:
        """The scores of the groups that stay; all others become -inf. A group counts by the sum of its two best."""
        rows: int = choosing.shape[0]
        count: int = choosing.shape[1]
        size = count // router.groups
        grouped = self.p.reshape(choosing, (rows, router.groups, size))
        best: A = self.p.argsort(grouped)[..., : min(2, size)]
        worth = self.p.sum(self.p.take_along(grouped, best), -1)
        stays = self.p.less(self.ranks(worth), router.keep_groups)
        spread = self.p.take(stays, self.p.array(np.arange(count) // size), 1)
        return self.p.where(spread, choosing, -np.inf)

    def ranks(self, x: A) -> A:
        """The place that each element of the last axis has in descending order, ties to the lower index."""
        return self.p.argsort(self.p.argsort(x) * -1)

    def experts(self, x: A, ids: A, weights: A, experts: Experts) -> A:
        packed: DenseExperts[A] = handle(experts, DenseExperts)
        host: np.ndarray[Any, np.dtype[np.int64]] = self.p.numpy(ids).astype(np.int64)
        rows, k = host.shape
        # One place for each row and rank; every expert fills those that chose it, in tiles of fixed shape.
        outputs = self.p.zeros((rows * k, x.shape[-1]), "act")
        chosen = host.reshape(-1)
        for expert in np.unique(chosen):
            places = np.flatnonzero(chosen == expert)
            taken = self.p.take(x, self.p.array(places // k))
            outputs = self.p.put(outputs, self.p.array(places), self._expert(taken, packed, int(expert)))
        ranked = self.p.cast(self.p.reshape(outputs, (rows, k, x.shape[-1])), "real")
        y: A = ranked[:, 0] * weights[:, 0, None]
        for rank in range(1, k):
            y = y + ranked[:, rank] * weights[:, rank, None]
        return self.p.cast(y, "act")

    def _expert(self, x: A, packed: DenseExperts[A], expert: int) -> A:
        inner = self.linear(x, packed.up[expert])
        opened = self.glu(inner, packed.act, packed.limit) if packed.gated else self.activate(inner, packed.act)
        return self.linear(opened, packed.down[expert])

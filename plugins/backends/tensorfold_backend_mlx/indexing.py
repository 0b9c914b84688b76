"""The indexer of sparse attention over a whole chunk: the sequence's keys are gathered once for many rows."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.composed_plans import block_plan
from tensorfold.contracts.ops import Selection
from tensorfold.contracts.states import PAGE, IndexKeys, TableKey
from tensorfold.contracts.step import Step
from tensorfold_backend_mlx.pure import MlxPureOps

__all__ = ["ChunkIndexOps"]

_SCORES = 256 << 20
"""Bytes of scores, by row and index head, that are held at a time."""


class ChunkIndexOps(MlxPureOps):
    """`index_topk` of one sequence."""

    def index_topk(
        self,
        step: Step[mx.array],
        name: str,
        q: mx.array,
        k: mx.array,
        weights: mx.array | None,
        *,
        topk: int,
        scale: float,
    ) -> Selection:
        spec = self.store.spec(name, IndexKeys)
        plan = block_plan(step, TableKey.of(spec))
        stored = plan.stored(spec.pool)
        if len(stored):
            self.write(step, name, spec, plan, (k[self.m.array(stored)],))
        if plan.blocks * PAGE // spec.pool <= topk:
            return self._selection(None)
        pages = self.m.array(plan.pages[0, : int(plan.last[-1]) + 1])
        keys = mx.flatten(self.store.pool(name)[0][pages], 0, 2).astype(mx.float32)
        queries = q.astype(mx.float32) * scale
        rows, heads, _ = q.shape
        some = max(1, _SCORES // (4 * heads * keys.shape[0]))
        chosen: list[mx.array] = []
        for first in range(0, rows, some):
            part = slice(first, first + some)
            weighing = None if weights is None else weights[part]
            chosen.append(self._best(plan.positions[part], queries[part], keys, weighing, spec.pool, topk))
        return self._selection(chosen[0] if len(chosen) == 1 else mx.concatenate(chosen, 0))

    def _best(
        self,
        positions: NDArray[np.int64],
        queries: mx.array,
        keys: mx.array,
        weights: mx.array | None,
        pool: int,
        topk: int,
    ) -> mx.array:
        """`[n, N * pool]` booleans by position: the best `topk` complete pools, and the positions of no complete one."""
        scores = mx.maximum(queries @ keys.T, 0.0)
        if weights is not None:
            scores = scores * weights.astype(mx.float32)[..., None]
        by_pool = mx.sum(scores, 1)
        complete = (positions[:, None] + 1) // pool
        among = mx.where(self.m.array(np.arange(keys.shape[0]) < complete), by_pool, -mx.inf)
        best = mx.repeat(self.ranks(among) < topk, pool, 1)
        tail = self.m.array(np.arange(keys.shape[0] * pool) >= complete * pool)
        return mx.logical_or(best, tail)

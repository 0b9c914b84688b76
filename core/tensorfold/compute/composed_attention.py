"""Attention over paged states: grouped heads, the compressed latent, and the indexer that selects what is read.

Each row is computed alone over its own blocks (pages of 64 positions), all of them of one shape: scores and weighted
values of every block by a batched product, then a sum over blocks by pairs. A block that a row does not see adds
exact zeros, so a row's bits depend neither on its neighbours nor on how far the longest of them reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np

from tensorfold.compute.composed_experts import ExpertOps
from tensorfold.compute.composed_plans import BlockPlan, block_plan, memo
from tensorfold.compute.composed_pure import handle
from tensorfold.compute.packing import DenseLatentUp
from tensorfold.compute.primitives import Primitives
from tensorfold.compute.store import ComposedStore, columns
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import LatentUp
from tensorfold.contracts.ops import Selection
from tensorfold.contracts.states import KV, PAGE, IndexKeys, Latent, PagedSpec, TableKey
from tensorfold.contracts.step import Step

__all__ = ["AttentionOps", "Selected"]

READ_BUDGET = 64 << 20
"""Bytes of keys and values that are gathered at a time: long contexts and chunks go in runs of rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Selected(Generic[A]):
    """What an indexer chose for each row of a Step."""

    positions: A | None
    """`[R, N]` booleans by position in the row's own sequence; None: everything that the row may see."""


class AttentionOps(ExpertOps[A]):
    """`attend`, `attend_latent` and `index_topk`."""

    def __init__(self, primitives: Primitives[A], store: ComposedStore[A]) -> None:
        super().__init__(primitives)
        self.store = store

    # ---- grouped heads ---------------------------------------------------------------------------------------

    def attend(
        self,
        step: Step[A],
        name: str,
        q: A,
        k: A | None,
        v: A | None,
        *,
        scale: float,
        select: Selection | None = None,
        sinks: A | None = None,
        softcap: float | None = None,
    ) -> A:
        spec = self.store.spec(name, KV)
        plan = block_plan(step, TableKey.of(spec))
        if k is not None and v is not None:
            self.write(step, name, spec, plan, (k, v))
        rows, heads, width = q.shape
        group = heads // spec.heads
        scaled: A = self.p.cast(q, "real") * scale
        queries = self.p.reshape(scaled, (rows, 1, spec.heads, group, width))
        logits = None if sinks is None else self.p.reshape(self.p.cast(sinks, "real"), (spec.heads, group, 1))

        def run(first: int, last: int) -> A:
            keys, values = (self._read(step, plan, column, first, last) for column in self.store.pool(name))
            scores = self.p.matmul(queries[first:last], keys, transposed=True)
            if softcap is not None:
                scores = self._softcapped(scores, softcap)
            seen = self._seen(step, plan, select, first, last)
            return self.p.reshape(self._read_out(scores, values, seen, logits), (last - first, heads, spec.v_dim))

        return self._runs(plan, spec, run)

    def write(self, step: Step[A], name: str, spec: PagedSpec, plan: BlockPlan, parts: Sequence[A]) -> None:
        """Store the rows of a Step, `[R, heads, width]` (or `[R, width]`) for each column of the state."""
        shapes = columns(spec)
        shape = shapes[0]
        index = memo(
            step,
            ("write", TableKey.of(spec), shape.heads, shape.rows),
            lambda: self.p.array(plan.write_index(shape.heads, shape.rows)),
        )
        rows = [
            self.p.reshape(part, (-1, column.heads, column.width)) for part, column in zip(parts, shapes, strict=True)
        ]
        self.store.write(name, index, rows)

    def _read(self, step: Step[A], plan: BlockPlan, column: A, first: int, last: int) -> A:
        """`[n, B, heads, 64, width]`: the blocks of rows `first` to `last`, in real."""
        table = memo(
            step,
            ("table", plan.key, first, last),
            lambda: self.p.array(plan.table(first, last)),
        )
        return self.p.cast(self.p.take(column, table), "real")

    def _runs(self, plan: BlockPlan, spec: PagedSpec, run: Callable[[int, int], A]) -> A:
        """All rows, run by run."""
        parts = [run(first, last) for first, last in self._spans(plan, spec)]
        return self.p.cast(parts[0] if len(parts) == 1 else self.p.concat(parts, 0), "act")

    def _spans(self, plan: BlockPlan, spec: PagedSpec) -> list[tuple[int, int]]:
        """Runs of rows whose blocks may be gathered at a time."""
        row = plan.blocks * sum(each.heads * each.rows * each.width for each in columns(spec))
        return plan.spans(row * self.p.itemsize("real"), READ_BUDGET)

    def _seen(self, step: Step[A], plan: BlockPlan, select: Selection | None, first: int, last: int) -> A:
        """`[n, B, 1, 1, 64]` booleans: what rows `first` to `last` read of their blocks."""
        seen = memo(
            step, ("seen", plan.key, first, last), lambda: self.p.array(plan.visible(first, last)[:, :, None, None])
        )
        if select is None:
            return seen
        selected: Selected[A] = handle(select, Selected)
        if selected.positions is None:
            return seen
        known: int = selected.positions.shape[1]
        places = np.minimum(plan.places(first, last), known - 1)
        picked = self.p.take_along(selected.positions[first:last], self.p.array(places))
        return self.p.where(seen, self.p.reshape(picked, seen.shape), seen)

    def _read_out(self, scores: A, values: A, seen: A, sinks: A | None) -> A:
        """Softmax over all blocks and 64 positions of each, and the values it weighs.

        Args:
            scores: `[n, B, k, g, 64]`, real.
            values: `[n, B, k, 64, v]`.
            seen: broadcasts against the scores.
            sinks: `[k, g, 1]`, logits that take weight and give no value.

        Returns:
            `[n, k, g, v]`.
        """
        masked = self.p.where(seen, scores, -np.inf)
        # The maximum is exact in any order; [n, 1, k, g, 1].
        top = self.p.largest(self.p.largest(masked, -1), 1)
        if sinks is not None:
            top = self.p.maximum(top, sinks)
        weights = self.p.exp(masked + top * -1.0)
        total = self.p.sum(self.p.sum(weights, -1), 1)[..., None]
        if sinks is not None:
            total = total + self.p.exp(sinks + top[:, 0] * -1.0)
        return self.p.divide(self.p.sum(self.p.matmul(weights, values), 1), total)

    # ---- the compressed latent -------------------------------------------------------------------------------

    def attend_latent(
        self,
        step: Step[A],
        name: str,
        q_nope: A,
        q_rope: A | None,
        latent: A,
        k_rope: A | None,
        up: LatentUp,
        *,
        scale: float,
        select: Selection | None = None,
    ) -> A:
        spec = self.store.spec(name, Latent)
        packed: DenseLatentUp[A] = handle(up, DenseLatentUp)
        plan = block_plan(step, TableKey.of(spec))
        self.write(step, name, spec, plan, (latent,) if k_rope is None else (latent, k_rope))
        rows, heads, _ = q_nope.shape
        # The key part of the up-projection moves to the query, the value part behind the sum.
        absorbed: A = self.by_head(q_nope, packed.key) * scale
        queries = [self.p.reshape(absorbed, (rows, 1, 1, heads, spec.latent))]
        if q_rope is not None:
            turned: A = self.p.cast(q_rope, "real") * scale
            queries.append(self.p.reshape(turned, (rows, 1, 1, heads, spec.rope)))

        def run(first: int, last: int) -> A:
            pools = [self._read(step, plan, column, first, last) for column in self.store.pool(name)]
            parts = [
                self.p.matmul(query[first:last], pool, transposed=True)
                for query, pool in zip(queries, pools, strict=True)
            ]
            scores: A = parts[0] if len(parts) == 1 else parts[0] + parts[1]
            seen = self._seen(step, plan, select, first, last)
            read = self._read_out(scores, pools[0], seen, None)
            return self.by_head(self.p.reshape(read, (last - first, heads, spec.latent)), packed.value)

        return self._runs(plan, spec, run)

    def by_head(self, x: A, weight: A) -> A:
        """`[R, h, i]` times each head's own matrix `[h, o, i]`: `[R, h, o]`, real."""
        product = self.p.matmul(self.p.cast(x, "real")[:, :, None, :], self.p.cast(weight, "real"), transposed=True)
        return self.p.reshape(product, (*x.shape[:2], weight.shape[1]))

    # ---- the indexer -----------------------------------------------------------------------------------------

    def index_topk(
        self, step: Step[A], name: str, q: A, k: A, weights: A | None, *, topk: int, scale: float
    ) -> Selection:
        spec = self.store.spec(name, IndexKeys)
        plan = block_plan(step, TableKey.of(spec))
        stored = plan.stored(spec.pool)
        if len(stored):
            whole = len(stored) == len(plan.positions)
            self.write(step, name, spec, plan, (k if whole else self.p.take(k, self.p.array(stored)),))
        if plan.blocks * PAGE // spec.pool <= topk:
            return self._selection(None)
        scaled: A = self.p.cast(q, "real") * scale
        wide = None if weights is None else self.p.cast(weights, "real")

        def run(first: int, last: int) -> A:
            keys = self._read(step, plan, self.store.pool(name)[0], first, last)
            # [n, B, i, 64 / pool], negative scores cut, weighed and summed over the index heads.
            scores = self.p.maximum(self.p.matmul(scaled[first:last, None, None], keys, transposed=True)[:, :, 0], 0.0)
            if wide is not None:
                scores = scores * wide[first:last, None, :, None]
            by_pool = self.p.reshape(self.p.sum(scores, 2), (last - first, -1))
            return self._chosen(plan, by_pool, spec.pool, topk, first, last)

        parts = [run(first, last) for first, last in self._spans(plan, spec)]
        return self._selection(parts[0] if len(parts) == 1 else self.p.concat(parts, 0))

    def _selection(self, positions: A | None) -> Selection:
        selected: Selected[A] = Selected(positions)
        return Selection(selected)

    def _chosen(self, plan: BlockPlan, scores: A, pool: int, topk: int, first: int, last: int) -> A:
        """`[n, N]` booleans by position: the best `topk` complete pools, and the positions of no complete one."""
        complete = (plan.positions[first:last, None] + 1) // pool
        places = plan.places(first, last)
        pools = places[0, ::pool] // pool
        among = self.p.where(self.p.array(pools < complete), scores, -np.inf)
        best = self.p.less(self.ranks(among), topk)
        spread = self.p.take(best, self.p.array(places[0] // pool), 1)
        tail = self.p.array(places >= complete * pool)
        return self.p.where(tail, tail, spread)

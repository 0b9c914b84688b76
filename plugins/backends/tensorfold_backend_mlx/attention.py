"""Attention over paged states with MLX's own kernel: one row at a time, or a whole chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np

from tensorfold.compute.composed_attention import READ_BUDGET, Selected
from tensorfold.compute.composed_plans import BlockPlan, block_plan, memo
from tensorfold.compute.composed_pure import handle
from tensorfold.compute.packing import DenseLatentUp
from tensorfold.compute.store import columns
from tensorfold.contracts.handles import LatentUp
from tensorfold.contracts.ops import Selection
from tensorfold.contracts.states import KV, PAGE, Latent, PagedSpec, TableKey
from tensorfold.contracts.step import Step
from tensorfold_backend_mlx.experts import MlxExpertOps
from tensorfold_backend_mlx.reading import Reading, readings

__all__ = ["ChunkAttentionOps", "RowsAttentionOps"]


class MlxAttentionOps(MlxExpertOps):
    """`attend` and `attend_latent`, over a way to read that the kinds differ in."""

    def read(
        self,
        step: Step[mx.array],
        plan: BlockPlan,
        spec: PagedSpec,
        queries: mx.array,
        pools: Sequence[mx.array],
        *,
        scale: float,
        select: Selection | None,
        sinks: mx.array | None,
    ) -> mx.array:
        """`[R, h, k]` queries over keys and values to `[R, h, v]`.

        Two pools are keys and values of as many heads as the state has. A latent's pools are its values first, and all
        of them side by side its keys.
        """
        raise NotImplementedError

    def attend(
        self,
        step: Step[mx.array],
        name: str,
        q: mx.array,
        k: mx.array | None,
        v: mx.array | None,
        *,
        scale: float,
        select: Selection | None = None,
        sinks: mx.array | None = None,
        softcap: float | None = None,
    ) -> mx.array:
        if softcap is not None:
            return super().attend(step, name, q, k, v, scale=scale, select=select, sinks=sinks, softcap=softcap)
        spec = self.store.spec(name, KV)
        plan = block_plan(step, TableKey.of(spec))
        if k is not None and v is not None:
            self.write(step, name, spec, plan, (k, v))
        pools = self.store.pool(name)
        return self.read(step, plan, spec, q.astype(self.m.act), pools, scale=scale, select=select, sinks=sinks)

    def attend_latent(
        self,
        step: Step[mx.array],
        name: str,
        q_nope: mx.array,
        q_rope: mx.array | None,
        latent: mx.array,
        k_rope: mx.array | None,
        up: LatentUp,
        *,
        scale: float,
        select: Selection | None = None,
    ) -> mx.array:
        spec = self.store.spec(name, Latent)
        packed: DenseLatentUp[mx.array] = handle(up, DenseLatentUp)
        plan = block_plan(step, TableKey.of(spec))
        self.write(step, name, spec, plan, (latent,) if k_rope is None else (latent, k_rope))
        # The key part of the up-projection moves to the query, the value part behind the sum.
        queries = self.by_head(q_nope, packed.key).astype(self.m.act)
        if q_rope is not None:
            queries = mx.concatenate([queries, q_rope.astype(self.m.act)], -1)
        pools = self.store.pool(name)
        read = self.read(step, plan, spec, queries, pools, scale=scale, select=select, sinks=None)
        return self.by_head(read, packed.value).astype(self.m.act)

    @staticmethod
    def keys_and_values(
        spec: PagedSpec, pools: Sequence[mx.array], gathered: Callable[[mx.array], mx.array]
    ) -> tuple[mx.array, mx.array]:
        """Each `[s, heads, N, width]`."""
        parts = [gathered(pool) for pool in pools]
        if isinstance(spec, KV):
            return parts[0], parts[1]
        return parts[0] if len(parts) == 1 else mx.concatenate(parts, -1), parts[0]

    @staticmethod
    def selected(select: Selection | None) -> mx.array | None:
        """`[R, known]` booleans by position, or None when a row reads all that it sees."""
        if select is None:
            return None
        chosen: Selected[mx.array] = handle(select, Selected)
        return chosen.positions


class RowsAttentionOps(MlxAttentionOps):
    """Every row with a shape that follows from its own position."""

    def read(
        self,
        step: Step[mx.array],
        plan: BlockPlan,
        spec: PagedSpec,
        queries: mx.array,
        pools: Sequence[mx.array],
        *,
        scale: float,
        select: Selection | None,
        sinks: mx.array | None,
    ) -> mx.array:
        planned = memo(step, ("readings", spec), lambda: self._readings(plan, spec))
        chosen = self.selected(select)
        outputs: list[mx.array] = []
        for reading in planned:
            keys, values = self.keys_and_values(spec, pools, reading.gathered)
            for turn in reading.turns:
                count = turn.rows.shape[0]
                seen = turn.seen
                if chosen is not None:
                    known = mx.minimum(turn.places, chosen.shape[1] - 1)
                    picked = mx.take_along_axis(chosen[turn.rows], known, -1)
                    seen = mx.logical_and(seen, picked[:, None, None])
                attended = mx.fast.scaled_dot_product_attention(
                    queries[turn.rows][:, :, None],
                    keys[:count],
                    values[:count],
                    scale=scale,
                    mask=seen,
                    sinks=None if sinks is None else sinks.astype(self.m.act),
                )
                outputs.append(attended[:, :, 0])
        joined = outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, 0)
        order = np.concatenate([reading.order for reading in planned])
        if (order[:-1] < order[1:]).all():
            return joined
        return joined[memo(step, ("readings back", spec), lambda: self.m.array(np.argsort(order)))]

    def _readings(self, plan: BlockPlan, spec: PagedSpec) -> list[Reading]:
        page = sum(each.heads * each.rows * each.width for each in columns(spec)) * self.m.itemsize("act")
        return readings(plan, max(1, READ_BUDGET // (plan.blocks * page)), self.m.array)

    def by_head(self, x: mx.array, weight: mx.array) -> mx.array:
        return mx.matmul(x.astype(weight.dtype)[:, :, None], weight.swapaxes(-1, -2))[:, :, 0]


class ChunkAttentionOps(MlxAttentionOps):
    """One sequence, all rows of the chunk in one call."""

    def read(
        self,
        step: Step[mx.array],
        plan: BlockPlan,
        spec: PagedSpec,
        queries: mx.array,
        pools: Sequence[mx.array],
        *,
        scale: float,
        select: Selection | None,
        sinks: mx.array | None,
    ) -> mx.array:
        first, last = int(plan.first[0]), int(plan.last[-1])
        pages = memo(step, ("chunk pages", plan.key), lambda: self.m.array(plan.pages[0, first : last + 1]))
        length = int(plan.positions[-1]) + 1 - first * PAGE

        def laid(pool: mx.array) -> mx.array:
            _, heads, _, width = pool.shape
            return mx.reshape(pool[pages].swapaxes(0, 1), (1, heads, -1, width))[:, :, :length]

        keys, values = self.keys_and_values(spec, pools, laid)
        attended = mx.fast.scaled_dot_product_attention(
            queries.swapaxes(0, 1)[None],
            keys,
            values,
            scale=scale,
            mask=self._mask(step, plan, first * PAGE, length, select),
            sinks=None if sinks is None else sinks.astype(self.m.act),
        )
        return attended[0].swapaxes(0, 1)

    def _mask(
        self, step: Step[mx.array], plan: BlockPlan, start: int, length: int, select: Selection | None
    ) -> mx.array | str:
        """What each row sees of the positions from `start` on: `[R, length]` booleans, or MLX's word for all before."""
        chosen = self.selected(select)
        window = plan.key.window
        if chosen is None and (window is None or plan.positions[-1] < window):
            return "causal"

        def seen() -> mx.array:
            places, own = np.arange(start, start + length), plan.positions[:, None]
            mask = places <= own
            return self.m.array(mask if window is None else mask & (places > own - window))

        mask = memo(step, ("chunk mask", plan.key), seen)
        return mask if chosen is None else mx.logical_and(mask, chosen[:, start : start + length])

    def by_head(self, x: mx.array, weight: mx.array) -> mx.array:
        wide = x.astype(weight.dtype).swapaxes(0, 1)
        return mx.matmul(wide, weight.swapaxes(-1, -2)).swapaxes(0, 1)

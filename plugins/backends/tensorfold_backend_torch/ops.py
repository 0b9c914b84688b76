"""The operations of both kinds: the composed ones, with what a step spends its time on written for torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tensorfold.compute.chunk_recurrences import ChunkRecurrentOps
from tensorfold.compute.composed import ComposedOps
from tensorfold.compute.composed_plans import BlockPlan, block_plan, memo
from tensorfold.compute.composed_pure import TILE, handle, rope_tables
from tensorfold.compute.store import ComposedStore
from tensorfold.contracts.handles import Activation, Embedding, Experts, Linear, Rope
from tensorfold.contracts.ops import Selection
from tensorfold.contracts.states import KV, PAGE, TableKey
from tensorfold.contracts.step import Step
from tensorfold_backend_torch.gathering import gathered, places
from tensorfold_backend_torch.grouping import GROUPS, grouped, turns
from tensorfold_backend_torch.packing import TorchEmbedding, TorchExperts, TorchLinear
from tensorfold_backend_torch.primitives import TorchPrimitives

__all__ = ["ChunkOps", "RowsOps"]

_NORM_TILE = 64
"""Rows (of heads as well) that a GPU normalizes in one call."""


class _TorchOps(ComposedOps[Tensor]):
    """What both kinds share."""

    def __init__(self, primitives: TorchPrimitives, store: ComposedStore[Tensor]) -> None:
        super().__init__(primitives, store)
        self.t = primitives

    def embed(self, ids: Tensor, weight: Embedding) -> Tensor:
        packed: TorchEmbedding = handle(weight, TorchEmbedding)
        rows = F.embedding(ids, packed.table)
        hidden = packed.shape[1]
        return rows if rows.shape[-1] == hidden else rows[..., :hidden]

    def rms_norm(self, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        wide = x.float()
        width = x.shape[-1]
        if weight is None or weight.dim() == 1:
            return self._normed(wide, width, weight, eps).to(self.t.act)
        return (self._normed(wide, width, None, eps) * weight).to(self.t.act)

    def _normed(self, x: Tensor, width: int, weight: Tensor | None, eps: float) -> Tensor:
        return F.rms_norm(x, (width,), weight, eps)

    def glu(self, gate_up: Tensor, act: Activation, limit: float | None = None) -> Tensor:
        if act != "silu" or limit is not None or gate_up.dtype != torch.float32:
            return super().glu(gate_up, act, limit)
        half = gate_up.shape[-1] // 2
        gate, up = gate_up[..., :half], gate_up[..., half:]
        # x / (1 + exp(-x)): torch's own silu has other bits in the last partial vector.
        opened = torch.exp(-gate).add_(1.0)
        torch.div(gate, opened, out=opened)
        return opened.mul_(up).to(self.t.act)

    def rope(self, step: Step[Tensor], x: Tensor, rope: Rope, *, shift: int = 0) -> Tensor:
        pairs = len(rope.inv_freq)
        if rope.interleaved or 2 * pairs != x.shape[-1]:
            return super().rope(step, x, rope, shift=shift)
        cosine, sine = memo(step, ("turning rope", rope, shift), lambda: self._turning(step, rope, shift))
        wide = x.float()
        turned = (wide * cosine).add_(wide.roll(pairs, -1).mul_(sine))
        return turned.to(self.t.act)

    def _turning(self, step: Step[Any], rope: Rope, shift: int) -> tuple[Tensor, Tensor]:
        """`[R, 1, d]` each: cosines, and the sines by which the other half of the row is multiplied."""
        cosine, sine = (torch.as_tensor(each).to(self.t.device)[:, None] for each in rope_tables(step, rope, shift))
        return torch.cat([cosine, cosine], -1), torch.cat([-sine, sine], -1)


class RowsOps(_TorchOps):
    """Rows whose bits depend on nothing but their own sequence: every call that chooses a kernel has one shape."""

    def __init__(self, primitives: TorchPrimitives, store: ComposedStore[Tensor]) -> None:
        super().__init__(primitives, store)
        self._tiles: dict[tuple[int, int, torch.dtype], Tensor] = {}

    def linear(self, x: Tensor, weight: Linear, *, wide: bool = False) -> Tensor:
        packed: TorchLinear = handle(weight, TorchLinear)
        matrix, bias = packed.parts(wide)
        rows = x.shape[0]
        count = -(-rows // TILE)
        tiles = self._tiled(x, count, packed, matrix.dtype)
        parts = [F.linear(tiles[tile], matrix, bias) for tile in range(count)]
        return (parts[0] if count == 1 else torch.cat(parts))[:rows, : packed.rows]

    def _tiled(self, x: Tensor, count: int, packed: TorchLinear, dtype: torch.dtype) -> Tensor:
        """`[count, 8, width]`, always in the same memory: neither strides nor borders follow from the input's.

        Rows beyond those of x hold what an earlier call left there, and no other row reads them. Columns beyond
        those of x stay zero, for nobody else writes to this memory.
        """
        key = (count, packed.columns, dtype)
        tiles = self._tiles.get(key)
        if tiles is None:
            # Made outside of inference mode, it can be written to in either.
            with torch.inference_mode(False):
                tiles = torch.zeros((count, TILE, packed.width), dtype=dtype, device=self.t.device)
            self._tiles[key] = tiles
        tiles.view(-1, packed.width)[: x.shape[0], : packed.columns].copy_(x)
        return tiles

    def experts(self, x: Tensor, ids: Tensor, weights: Tensor, experts: Experts) -> Tensor:
        packed: TorchExperts = handle(experts, TorchExperts)
        # A GPU's grouped products have not been seen to keep rows apart.
        run = self._grouped if GROUPS is not None and self.t.on_host else self._gathered
        return self.mix(weights, run(x.to(self.t.act), ids, packed).view(*ids.shape, -1))

    def _grouped(self, x: Tensor, ids: Tensor, packed: TorchExperts) -> Tensor:
        """`[R, H]` and `[R, k]` to `[R k, H]`: every choice's output, without a copy of any matrix."""
        outputs = x.new_empty((ids.numel(), x.shape[1]))
        for tiles in turns(ids, packed.count):
            taken = x.new_zeros((tiles.size, packed.ups.shape[2]))
            taken[tiles.places, : x.shape[1]] = x[tiles.taken // ids.shape[1]]
            opened = self._opened(grouped(taken, packed.ups, tiles), packed)
            outputs[tiles.taken] = grouped(opened, packed.downs, tiles)[tiles.places, : x.shape[1]]
        return outputs

    def _gathered(self, x: Tensor, ids: Tensor, packed: TorchExperts) -> Tensor:
        """The same by copies of the chosen matrices."""
        found = places(ids, packed.count)
        taken = x.new_zeros((len(found.experts), TILE, packed.ups.shape[2]))
        taken.view(-1, taken.shape[2])[found.places, : x.shape[1]] = x[found.taken // ids.shape[1]]
        opened = self._opened(gathered(taken, packed.ups, found.experts), packed)
        products = gathered(opened, packed.downs, found.experts)
        outputs = x.new_empty((ids.numel(), x.shape[1]))
        outputs[found.taken] = products.view(-1, products.shape[2])[found.places, : x.shape[1]]
        return outputs

    def _opened(self, inner: Tensor, packed: TorchExperts) -> Tensor:
        """What goes into the second product: activated, and filled up like the matrices of the second stack."""
        rows = inner[..., : sum(packed.up[0].sizes)]
        opened = self.glu(rows, packed.act, packed.limit) if packed.gated else self.activate(rows, packed.act)
        return F.pad(opened, (0, packed.downs.shape[2] - opened.shape[-1]))

    def _normed(self, x: Tensor, width: int, weight: Tensor | None, eps: float) -> Tensor:
        if self.t.on_host:
            return F.rms_norm(x, (width,), weight, eps)
        # Reductions on a GPU are split by the size of the whole, so they get one size as well.
        flat = x.reshape(-1, width)
        rows = flat.shape[0]
        tiles = F.pad(flat, (0, 0, 0, -rows % _NORM_TILE)).view(-1, _NORM_TILE, width)
        parts = [F.rms_norm(tile, (width,), weight, eps) for tile in tiles]
        return torch.cat(parts)[:rows].reshape(x.shape)

    def by_head(self, x: Tensor, weight: Tensor) -> Tensor:
        # A head's matrix is read once for 8 rows, not once for each.
        rows, heads, inner = x.shape
        filled = F.pad(x.float(), (0, 0, 0, 0, 0, -rows % TILE))
        tiles = filled.view(-1, TILE, heads, inner).transpose(1, 2)
        wide = weight.float()
        parts = [self.t.pairs(tile, wide, transposed=True).transpose(0, 1) for tile in tiles]
        return torch.cat(parts)[:rows]

    def attend(
        self,
        step: Step[Tensor],
        name: str,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        *,
        scale: float,
        select: Selection | None = None,
        sinks: Tensor | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        spec = self.store.spec(name, KV)
        plan = block_plan(step, TableKey.of(spec))
        if select is not None or sinks is not None or softcap is not None or len(self._spans(plan, spec)) > 1:
            return super().attend(step, name, q, k, v, scale=scale, select=select, sinks=sinks, softcap=softcap)
        if k is not None and v is not None:
            self.write(step, name, spec, plan, (k, v))
        table, hidden = memo(step, ("torch blocks", plan.key), lambda: self._blocks(plan))
        keys, values = (
            pool.index_select(0, table).float().view(-1, PAGE, pool.shape[-1]) for pool in self.store.pool(name)
        )
        rows, heads, width = q.shape
        blocks, group = plan.blocks, heads // spec.heads
        queries = (q.float() * scale).view(rows, 1, spec.heads, group, width)
        spread = queries.expand(rows, blocks, spec.heads, group, width).reshape(-1, group, width)
        scores = self.t.pairs(spread, keys, transposed=True).view(rows, blocks, spec.heads, group, PAGE)
        weights = scores.add_(hidden)
        weights = weights.sub_(weights.amax((1, 4), keepdim=True)).exp_()
        total = self.t.folded(self._total(weights), 1)
        read = self.t.pairs(weights.view(-1, group, PAGE), values).view(rows, blocks, spec.heads, group, spec.v_dim)
        attended = self.t.folded(read, 1) / total[..., None]
        return attended.view(rows, heads, spec.v_dim).to(self.t.act)

    def _total(self, weights: Tensor) -> Tensor:
        """The sum over a block's positions."""
        return weights.sum(-1) if self.t.on_host else self.p.sum(weights, -1)

    def _blocks(self, plan: BlockPlan) -> tuple[Tensor, Tensor]:
        """The pages of all rows in one run, and 0 or -inf for each of their positions, `[R, B, 1, 1, 64]`."""
        table = self.t.array(plan.table(0, len(plan.positions)).reshape(-1))
        seen = self.t.array(plan.visible(0, len(plan.positions))[:, :, None, None])
        return table, torch.zeros(seen.shape, device=self.t.device).masked_fill_(~seen, -torch.inf)


class ChunkOps(_TorchOps, ChunkRecurrentOps[Tensor]):
    """One chunk of one sequence, alone and at its planned shape: the library's own kernels over all of it."""

    def glu(self, gate_up: Tensor, act: Activation, limit: float | None = None) -> Tensor:
        if act != "silu" or limit is not None:
            return super().glu(gate_up, act, limit)
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate).mul_(up).to(self.t.act)

    def by_head(self, x: Tensor, weight: Tensor) -> Tensor:
        return torch.bmm(x.float().transpose(0, 1), weight.float().transpose(1, 2)).transpose(0, 1)

    def linear(self, x: Tensor, weight: Linear, *, wide: bool = False) -> Tensor:
        packed: TorchLinear = handle(weight, TorchLinear)
        matrix, bias = packed.parts(wide)
        act, rows = x.to(matrix.dtype), x.shape[0]
        missing = (packed.width - packed.columns, -rows % TILE)
        # Of 5 to 11 rows the library's bits depend on the number of threads, but for 8.
        filled = F.pad(act, (0, missing[0], 0, missing[1])) if any(missing) else act
        return F.linear(filled, matrix, bias)[:rows, : packed.rows]

    def attend(
        self,
        step: Step[Tensor],
        name: str,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        *,
        scale: float,
        select: Selection | None = None,
        sinks: Tensor | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        if select is not None or sinks is not None or softcap is not None:
            return super().attend(step, name, q, k, v, scale=scale, select=select, sinks=sinks, softcap=softcap)
        spec = self.store.spec(name, KV)
        plan = block_plan(step, TableKey.of(spec))
        if k is not None and v is not None:
            self.write(step, name, spec, plan, (k, v))
        rows, heads, _ = q.shape
        causal = plan.positions[0] == 0 and (spec.window is None or spec.window >= rows)
        table, mask = memo(step, ("torch chunk", plan.key), lambda: self._view(plan))
        keys, values = (self._run(pool, table)[:, : mask.shape[1]] for pool in self.store.pool(name))
        attended = F.scaled_dot_product_attention(
            q.to(self.t.act).transpose(0, 1)[None],
            keys[None],
            values[None],
            attn_mask=None if causal else mask,
            is_causal=bool(causal),
            scale=scale,
            enable_gqa=heads != spec.heads,
        )
        return attended[0].transpose(0, 1)

    @staticmethod
    def _run(pool: Tensor, table: Tensor) -> Tensor:
        """`[heads, N, width]`: the pages of one sequence, laid end to end."""
        pages = pool.index_select(0, table).transpose(0, 1)
        return pages.reshape(pool.shape[1], -1, pool.shape[-1])

    def _view(self, plan: BlockPlan) -> tuple[Tensor, Tensor]:
        """The pages that any row of the chunk sees, and `[R, N]`, 0 or -inf, for the positions up to its last."""
        first, own = int(plan.first[0]), plan.positions[:, None]
        places = np.arange(first * PAGE, int(plan.positions[-1]) + 1)
        seen = places <= own
        if plan.key.window is not None:
            seen &= places > own - plan.key.window
        mask = torch.zeros(seen.shape, dtype=self.t.act, device=self.t.device)
        pages = plan.pages[0, first : int(plan.last[-1]) + 1]
        return self.t.array(pages), mask.masked_fill_(~self.t.array(seen), -torch.inf)

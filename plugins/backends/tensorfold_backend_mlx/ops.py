"""The operations of both kinds."""

from __future__ import annotations

import mlx.core as mx

from tensorfold.compute.chunk_recurrences import ChunkRecurrentOps
from tensorfold.contracts.handles import Linear
from tensorfold_backend_mlx import products
from tensorfold_backend_mlx.attention import ChunkAttentionOps, RowsAttentionOps
from tensorfold_backend_mlx.experts import ChunkExpertOps
from tensorfold_backend_mlx.indexing import ChunkIndexOps
from tensorfold_backend_mlx.matrices import Matrix
from tensorfold_backend_mlx.recurrent import RowsRecurrentOps

__all__ = ["ChunkOps", "RowsOps"]


class RowsOps(RowsAttentionOps, RowsRecurrentOps):
    """Rows whose bits depend on nothing but their own sequence: every call that chooses a kernel has one shape."""

    def linear(self, x: mx.array, weight: Linear, *, wide: bool = False) -> mx.array:
        return products.linear(x, weight, self.m.act, self._product, wide=wide)

    def _product(self, x: mx.array, matrix: Matrix) -> mx.array:
        return products.in_rows(x, matrix, on_host=self.m.on_host)


class ChunkOps(ChunkIndexOps, ChunkAttentionOps, ChunkExpertOps, ChunkRecurrentOps[mx.array]):
    """One chunk of one sequence, alone and at its planned shape: MLX's own kernels over all of it."""

    def linear(self, x: mx.array, weight: Linear, *, wide: bool = False) -> mx.array:
        return products.linear(x, weight, self.m.act, products.whole, wide=wide)

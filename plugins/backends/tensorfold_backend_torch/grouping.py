"""Rows in tiles of the experts that they chose: as many products as there are tiles, in one call of the library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from tensorfold.compute.composed_pure import TILE

__all__ = ["GROUPS", "Tiles", "grouped", "turns"]

GROUPS: Final = cast("Callable[..., Tensor] | None", getattr(F, "grouped_mm", None))
"""Multiplies runs of rows each by a matrix of a stack; older versions of torch have no such product."""


@dataclass(frozen=True, slots=True, eq=False)
class Tiles:
    """A tile of rows for each of some experts."""

    taken: Tensor
    """`[n]`: rows, numbered from the first choice of the first row on."""
    places: Tensor
    """`[n]`: where each of them is in the tiles, which lie under each other."""
    ends: Tensor
    """`[E]` int32: where the tile of each expert ends; of one without a tile, where the last one before ends."""
    size: int
    """Rows of all tiles."""


def turns(ids: Tensor, experts: int) -> list[Tiles]:
    """`[R, k]`: what every row chose. In turn t each expert has its rows from the 8 t-th on, so that every product has one
    shape, by whatever many an expert was chosen."""
    chosen = ids.reshape(-1).long()
    order = torch.sort(chosen, stable=True).indices
    ranked = chosen[order]
    counts = torch.bincount(chosen, minlength=experts)
    within = torch.arange(len(chosen), device=ids.device) - (counts.cumsum(0) - counts)[ranked]
    made: list[Tiles] = []
    for turn in range(-(-int(counts.max()) // TILE)):
        has = counts > turn * TILE
        ends = has.cumsum(0) * TILE
        mine = within // TILE == turn
        places = ends[ranked[mine]] - TILE + within[mine] % TILE
        made.append(Tiles(order[mine], places, ends.int(), int(ends[-1])))
    return made


def grouped(x: Tensor, stack: Tensor, tiles: Tiles) -> Tensor:
    """`[size, I]` rows times the transposed matrices `[E, O, I]` of their experts, `[size, O]`."""
    multiply: Any = GROUPS
    product: Tensor = multiply(x, stack.transpose(1, 2), offs=tiles.ends)
    return product

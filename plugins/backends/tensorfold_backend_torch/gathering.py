"""Tiles of rows and copies of the matrices that they chose, for products of one shape on any device.

Nothing here is looked at on the host: how many products there are follows from the shapes alone, so that a GPU never
waits for a round's choices to be known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from tensorfold.compute.composed_pure import TILE

__all__ = ["BATCH", "Places", "gathered", "places"]

BATCH: Final = 8
"""Products of one call, and matrices that are copied for it. A library chooses its kernel by their number as well, so
there is but one. A row chooses 4 to 10 experts; more would be copied for nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where rows lie in tiles, each of which belongs to one expert."""

    taken: Tensor
    """`[n]`: choices, numbered from the first of the first row on, in the order of their experts."""
    places: Tensor
    """`[n]`: where each of them is in the tiles, which lie under each other."""
    experts: Tensor
    """`[T]`: whose each tile is. Of tiles that stay empty, any."""


def places(ids: Tensor, experts: int) -> Places:
    """`[R, k]`: what every row chose."""
    chosen = ids.reshape(-1).long()
    order = torch.sort(chosen, stable=True).indices
    ranked = chosen[order]
    counts = torch.zeros(experts, dtype=torch.long, device=ids.device).scatter_add_(0, chosen, torch.ones_like(chosen))
    within = torch.arange(len(chosen), device=ids.device) - (counts.cumsum(0) - counts)[ranked]
    tiles = (counts + TILE - 1) // TILE
    ends = tiles.cumsum(0)
    first = (ends - tiles)[ranked]
    numbers = torch.arange(-(-_most(len(chosen), experts) // BATCH) * BATCH, device=ids.device)
    whose = torch.searchsorted(ends, numbers, right=True).clamp_(max=experts - 1)
    return Places(order, first * TILE + within, whose)


def _most(choices: int, experts: int) -> int:
    """Tiles that so many choices can take: one for each expert that has any, one more for every 8 beyond its first."""
    used = min(choices, experts)
    return used + (choices - used) // TILE


def gathered(x: Tensor, stack: Tensor, experts: Tensor) -> Tensor:
    """`[T, 8, I]` tiles times the transposed matrices `[E, O, I]` of their experts, `[T, 8, O]`."""
    batches = (slice(first, first + BATCH) for first in range(0, len(experts), BATCH))
    return torch.cat([torch.bmm(x[batch], stack[experts[batch]].transpose(1, 2)) for batch in batches])

"""Who reads which pages: rows in groups whose attention has one shape, so that no row's shape follows from another's.

MLX chooses a kernel for attention by the number of keys. Rows share a call as a batch where they read equally many
pages, and rows of one sequence read the pages that were gathered for it once: in turn i the i-th row of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.composed_plans import BlockPlan
from tensorfold.contracts.states import PAGE

__all__ = ["Reading", "Turn", "readings"]


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One row of each of the first sequences of a reading."""

    rows: mx.array
    """`[m]`."""
    seen: mx.array
    """`[m, 1, 1, N]` booleans: what each row sees of the keys."""
    places: mx.array
    """`[m, N]`: the positions of the keys in the row's sequence."""


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Sequences of whose pages equally many are read, N keys each."""

    pages: mx.array
    """`[s, B]`."""
    turns: tuple[Turn, ...]
    order: NDArray[np.int64]
    """The rows of all turns, laid end to end."""

    def gathered(self, pool: mx.array) -> mx.array:
        """`[s, heads, N, width]` of a pool `[pages, heads, rows of a page, width]`."""
        _, heads, inside, width = pool.shape
        by_head = self.pages[:, None] * heads + mx.arange(heads)[None, :, None]
        taken = mx.reshape(pool, (-1, inside, width))[by_head]
        return mx.reshape(taken, (*taken.shape[:2], -1, width))


def readings(plan: BlockPlan, sequences: int, upload: Callable[[NDArray[np.generic]], mx.array]) -> list[Reading]:
    """All rows of a Step, with the pages of at most so many sequences gathered at a time."""
    counts = plan.last - plan.first + 1
    by_count: dict[int, dict[tuple[int, int], list[int]]] = {}
    for row in range(len(plan.positions)):
        view = (int(plan.owner[row]), int(plan.first[row]))
        by_count.setdefault(int(counts[row]), {}).setdefault(view, []).append(row)
    made: list[Reading] = []
    for count, views in by_count.items():
        ordered = sorted(views.values(), key=len, reverse=True)
        for first in range(0, len(ordered), sequences):
            made.append(_reading(plan, count, ordered[first : first + sequences], upload))
    return made


def _reading(
    plan: BlockPlan, count: int, views: list[list[int]], upload: Callable[[NDArray[np.generic]], mx.array]
) -> Reading:
    heads = np.asarray([rows[0] for rows in views])
    first = plan.first[heads, None]
    pages = plan.pages[plan.owner[heads, None], first + np.arange(count)]
    turns: list[Turn] = []
    order: list[int] = []
    for turn in range(len(views[0])):
        rows = [each[turn] for each in views if len(each) > turn]
        places = plan.first[rows, None] * PAGE + np.arange(count * PAGE)
        own = plan.positions[rows, None]
        seen = places <= own
        if plan.key.window is not None:
            seen &= places > own - plan.key.window
        order += rows
        turns.append(Turn(upload(np.asarray(rows)), upload(seen[:, None, None]), upload(places)))
    return Reading(upload(pages), tuple(turns), np.asarray(order))

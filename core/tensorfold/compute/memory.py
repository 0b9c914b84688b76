"""How many pages, lanes and positions a machine can hold of a model, from its declared states alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tensorfold.compute.pages import pages_a_sequence, pages_of
from tensorfold.contracts.backend import Session
from tensorfold.contracts.family import Geometry
from tensorfold.contracts.states import PAGE, TableKey, is_paged
from tensorfold.errors import ConfigError

__all__ = ["MemoryPlan", "plan_memory"]

LANES = 8
"""Replies that run at once unless it is said how many."""
SHARE = 0.8
"""Of the memory that is free once the weights are loaded; the rest is for activations and the host's other work."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What will be allocated."""

    window: int
    """The effective context: prompt and reply together."""
    lanes: int
    """Choices that may run at once."""
    pages: Mapping[TableKey, int]
    """Pages of each pool."""
    bytes: int
    """Device memory of all states."""
    positions: int
    """Positions that all sequences share, of the scarcest full table."""
    copies: int
    """Device memory left for copies of fixed-size states, in bytes; kept prefixes need it."""
    shortened: bool
    """Whether the window is smaller than the checkpoint's because memory is short."""


@dataclass(frozen=True, slots=True)
class _Costs:
    """Bytes, by where they arise."""

    page: Mapping[TableKey, int]
    slot: int

    @staticmethod
    def of(geometry: Geometry, session: Session[Any]) -> _Costs:
        page: dict[TableKey, int] = {}
        slot = 0
        for spec in geometry.states.values():
            if is_paged(spec):
                key = TableKey.of(spec)
                page[key] = page.get(key, 0) + session.page_bytes(spec)
            else:
                slot += session.page_bytes(spec)
        return _Costs(page, slot)


def plan_memory(
    geometry: Geometry,
    session: Session[Any],
    *,
    lanes: int | None,
    context: int | None = None,
    budget: int | None = None,
    chunk: int | None = None,
    copies: int | None = None,
    reserve: int | None = None,
) -> MemoryPlan:
    """Pools in which the sequences of all lanes share positions, one of them reaching the whole window.

    `lanes` None: as many as their fixed-size states leave room for pages, up to `LANES`. `context` makes the window
    smaller; `budget` is in bytes (None: what the device has free, less `reserve` bytes, or less a fifth); `chunk` is the
    step of the chunk plan (None: the session's own). `copies` are bytes to be left for copies of fixed-size states, at
    most half of the budget (None: four copies a lane, at most an eighth of it, and never at the window's cost).

    Raises:
        ConfigError: not even one sequence of `context` positions (or of one page) fits, or `context` is out of range.
    """
    if context is not None and not 1 <= context <= geometry.window:
        raise ConfigError(f"--context is {context}, and this checkpoint's window is {geometry.window} positions")
    chunk = session.chunk if chunk is None else chunk
    room = _room(session, reserve) if budget is None else budget
    costs = _Costs.of(geometry, session)
    lanes = _auto_lanes(costs, room) if lanes is None else lanes
    room_for_pages = room - lanes * costs.slot - _asked_copies(costs, room, copies)
    window = geometry.window if context is None else context
    fitting = _largest_window(costs, window, chunk, room_for_pages)
    if fitting < min(window, PAGE) or (context is not None and fitting < context):
        needed = lanes * costs.slot + _bytes(costs, dict.fromkeys(costs.page, 1), window, chunk)
        raise ConfigError(
            f"one sequence of {window} positions needs {needed:,} bytes of state and {max(0, room):,} are there;"
            f" at most {fitting} positions fit: use --context or fewer --parallel lanes"
        )
    one = _bytes(costs, dict.fromkeys(costs.page, 1), fitting, chunk)
    left = _copies(costs, lanes, room, copies, beyond=room_for_pages - one)
    pages = _fill(costs, fitting, chunk, lanes, room_for_pages - (left if copies is None else 0))
    full = [count for key, count in pages.items() if key.window is None]
    return MemoryPlan(
        window=fitting,
        lanes=lanes,
        pages=pages,
        bytes=lanes * costs.slot + sum(costs.page[key] * count for key, count in pages.items()),
        positions=min(full, default=0) * PAGE,
        copies=left,
        shortened=fitting < window,
    )


def _room(session: Session[Any], reserve: int | None) -> int:
    available = session.memory().available
    return int(available * SHARE) if reserve is None else max(0, available - reserve)


def _auto_lanes(costs: _Costs, room: int) -> int:
    """Fixed-size states get at most half of the memory."""
    return LANES if not costs.slot else max(1, min(LANES, room // 2 // costs.slot))


def _asked_copies(costs: _Costs, room: int, copies: int | None) -> int:
    return min(room // 2, copies) if costs.slot and copies is not None else 0


def _copies(costs: _Costs, lanes: int, room: int, copies: int | None, *, beyond: int) -> int:
    """Bytes for copies of fixed-size states; unasked, of what is left `beyond` one whole sequence."""
    if copies is not None or not costs.slot:
        return _asked_copies(costs, room, copies)
    return max(0, min(room // 8, 4 * lanes * costs.slot, beyond))


def _bytes(costs: _Costs, lanes: Mapping[TableKey, int], window: int, chunk: int) -> int:
    return sum(cost * lanes[key] * pages_a_sequence(key, window, chunk) for key, cost in costs.page.items())


def _largest_window(costs: _Costs, window: int, chunk: int, room: int) -> int:
    """The longest sequence, up to `window`, whose states fit; whole pages when it has to be cut."""
    one = dict.fromkeys(costs.page, 1)
    if _bytes(costs, one, window, chunk) <= room:
        return window
    low, high = 0, pages_of(window) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _bytes(costs, one, middle * PAGE, chunk) <= room:
            low = middle
        else:
            high = middle - 1
    return low * PAGE


def _fill(costs: _Costs, window: int, chunk: int, lanes: int, room: int) -> dict[TableKey, int]:
    """Pools for all lanes, or as large a share of that as fits beyond one whole sequence."""
    one = {key: pages_a_sequence(key, window, chunk) for key in costs.page}
    left = room - sum(costs.page[key] * count for key, count in one.items())
    more = {key: count * (lanes - 1) for key, count in one.items()}
    wanted = sum(costs.page[key] * count for key, count in more.items())
    share = 1.0 if wanted <= left else max(0.0, left / wanted)
    return {key: one[key] + int(more[key] * share) for key in costs.page}

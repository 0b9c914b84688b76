"""What a runner holds of its memory, and what it could still give."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Memory", "Pages", "Pool"]


@dataclass(frozen=True, slots=True)
class Memory:
    """What a runner holds and could still give."""

    lanes: int
    lanes_free: int
    positions: int
    """Of the scarcest full table, in positions; 0 when no state grows."""
    positions_free: int
    """Held by nobody."""
    positions_spare: int
    """Held by snapshots alone, and free once those are dropped."""
    bytes: int
    """Device memory of all states."""
    pools: tuple[Pool, ...] = ()
    """Each table's own pages."""


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool of pages, in positions."""

    name: str
    """`main` or `draft`, with the window behind it where the table has one (`main-window-512`)."""
    positions: int
    used: int
    """Held by running sequences."""
    kept: int
    """Held by snapshots, those included that running sequences hold as well."""


@dataclass(frozen=True, slots=True)
class Pages:
    """One pool, in pages."""

    total: int
    free: int
    spare: int
    """Held by snapshots alone."""

"""Checkpoints that lie on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["LocalCheckpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCheckpoint:
    """One of them."""

    name: str
    """What `tensorfold serve` takes."""
    path: Path
    """Its folder or file."""
    bytes: int
    """Of all its files."""
    source: str
    """Who keeps it there (`Hub cache`)."""
    complete: bool = True
    """Whether all of it is there."""

"""What a look has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Finding", "State"]

State: TypeAlias = Literal["ok", "note", "warning", "problem"]
"""`note`: it could be otherwise, and nothing is wrong. A `problem` keeps a server from starting or serving."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line."""

    area: str
    state: State
    says: str
    todo: str = ""
    """What to do about it; empty: nothing."""

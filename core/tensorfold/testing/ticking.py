"""A clock for engines in tests whose schedule must not depend on how fast this machine happens to be."""

from __future__ import annotations

import itertools
from collections.abc import Callable

__all__ = ["ticking"]


def ticking() -> Callable[[], float]:
    """A millisecond later at each look."""
    looks = itertools.count()
    return lambda: next(looks) / 1000

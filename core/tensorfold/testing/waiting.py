"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["until"]


def until(claim: Callable[[], Any], seconds: float = 30.0) -> None:
    """Return when a claim holds.

    Raises:
        AssertionError: it does not within that time, which is long enough for a busy machine.
    """
    give_up = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < give_up, "it never came to that"
        time.sleep(0.005)

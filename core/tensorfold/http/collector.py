"""Python's collector of cycles, set for a server: what lives as long as it does is not looked through again and again."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator

__all__ = ["long_lived"]

_THRESHOLDS = (10_000, 20, 20)
"""Of the three generations. PERF: a thousand open streams are some hundred thousand objects that hardly ever form cycles,
and each token makes and drops a few dozen more: with Python's own thresholds a tenth of the processor's time goes there."""


@contextlib.contextmanager
def long_lived() -> Generator[None]:
    """Inside, all that exists by now (modules, the model, routes) counts as permanent. The process's setting: one at a time."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()

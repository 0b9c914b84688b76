"""Watches the engine thread from outside: a step that does not return is told, with what every thread is doing."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable

import structlog

__all__ = ["Watchdog", "stacks"]


class Watchdog:
    """A thread that asks now and then, and logs each trouble once."""

    def __init__(self, trouble: Callable[[], str | None], period: float) -> None:
        """`trouble` says what is wrong, or None; `period` is in seconds."""
        self._trouble = trouble
        self._period = period
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tensorfold-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; harmless when it never began."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        told = False
        while not self._over.wait(self._period):
            trouble = self._trouble()
            if trouble is not None and not told:
                structlog.get_logger().critical("the engine is stuck", problem=trouble, stacks=stacks())
            elif trouble is None and told:
                structlog.get_logger().warning("the engine goes on")
            told = trouble is not None


def stacks() -> str:
    """Where every thread is, innermost call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    # The only way to another thread's stack; it is read, and never kept.
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
    return "\n".join(
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in frames.items()
    )

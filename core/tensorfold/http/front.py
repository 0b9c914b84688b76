"""A small bounded pool of threads for work that would hold the event loop up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tensorfold.errors import Rejected

__all__ = ["FrontPool"]

T = TypeVar("T")


class FrontPool:
    """Runs functions in threads; more than the bound at once are refused. Threads start with the first use."""

    def __init__(self, threads: int, queue: int) -> None:
        """`threads` work, `queue` more calls may wait."""
        self._bound = threads + queue
        self._open = 0
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="tensorfold-front")

    async def run(self, function: Callable[[], T]) -> T:
        """What the function returns or raises.

        Raises:
            Rejected: too many calls wait already.
        """
        if self._open >= self._bound:
            raise Rejected("the server has too many large requests to read at once; try again shortly")
        self._open += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, function)
        finally:
            self._open -= 1

    def close(self) -> None:
        """End the threads; what waits is dropped."""
        self._executor.shutdown(wait=True, cancel_futures=True)

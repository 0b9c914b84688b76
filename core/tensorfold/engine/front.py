"""The pool that renders and tokenizes, so that the event loop never does, with a bound on what may wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from tensorfold.errors import Rejected

__all__ = ["FrontPool"]

T = TypeVar("T")

POLL = 0.005
"""Seconds between two looks at work that is about to end."""


class FrontPool:
    """A few threads and a short queue. Used on one event loop."""

    def __init__(self, threads: int, queue: int) -> None:
        """`queue` counts what waits and what is worked on."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tensorfold-front")
        self._queue = queue
        self._work: set[Future[Any]] = set()
        """Added to by the loop, taken from by whichever thread ends the work."""
        self._closed = False

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, or what it raises. When the caller is cancelled, work that has begun goes on alone.

        Raises:
            Rejected: too much is waiting already, or the pool is closed.
        """
        if self._closed:
            raise Rejected("the server is shutting down")
        if len(self._work) >= self._queue:
            raise Rejected(f"{self._queue} requests are being read, and no more may wait: try again", retry_after=1.0)
        future = self._pool.submit(work)
        self._work.add(future)
        future.add_done_callback(self._work.discard)
        return await asyncio.wrap_future(future)

    async def close(self, limit: float) -> None:
        """Drop what waits, and return when what is worked on is done, or after `limit` seconds."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        loop = asyncio.get_running_loop()
        end = loop.time() + limit
        while self._work and loop.time() < end:
            await asyncio.sleep(POLL)
        # Without work the threads are on their way out, and joining them takes no time.
        self._pool.shutdown(wait=not self._work)

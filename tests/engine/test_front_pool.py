"""The pool that renders and tokenizes."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tensorfold.engine.front import FrontPool
from tensorfold.errors import InvalidRequest, Rejected


def test_work_beyond_the_bound_is_refused_at_once_and_taken_when_there_is_room() -> None:
    """One place is one piece of work that waits or is worked on."""

    async def main() -> None:
        pool = FrontPool(threads=1, queue=2)
        release = threading.Event()
        tasks = [asyncio.ensure_future(pool.run(release.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Rejected) as caught:
            await pool.run(lambda: None)
        assert caught.value.status == 503 and caught.value.retry_after
        release.set()
        assert await asyncio.gather(*tasks) == [True, True]
        assert await pool.run(lambda: 7) == 7
        await pool.close(5)

    asyncio.run(main())


def test_what_work_raises_reaches_the_caller_and_frees_its_place() -> None:
    """A refused prompt costs nothing afterwards."""

    async def main() -> None:
        pool = FrontPool(threads=1, queue=1)

        def refuse() -> None:
            raise InvalidRequest("no")

        for _ in range(3):
            with pytest.raises(InvalidRequest, match="no"):
                await pool.run(refuse)
        await pool.close(5)

    asyncio.run(main())


def test_a_caller_that_leaves_holds_its_place_until_the_work_is_done() -> None:
    """Abandoned work is still work: the bound is on what the threads have to do."""

    async def main() -> None:
        pool = FrontPool(threads=1, queue=1)
        release, started = threading.Event(), threading.Event()

        def work() -> None:
            started.set()
            release.wait()

        task = asyncio.ensure_future(pool.run(work))
        while not started.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(Rejected):
            await pool.run(lambda: None)
        release.set()
        await pool.close(5)

    asyncio.run(main())


def test_closing_waits_for_work_and_leaves_no_thread() -> None:
    """What waits is dropped, what is worked on is done, and afterwards work is refused."""

    async def main() -> None:
        pool = FrontPool(threads=2, queue=4)
        assert await pool.run(lambda: 1) == 1
        await pool.close(5)
        with pytest.raises(Rejected, match="shutting down"):
            await pool.run(lambda: 1)
        assert not [each for each in threading.enumerate() if each.name.startswith("tensorfold-front")]

    asyncio.run(main())

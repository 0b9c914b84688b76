"""Who may wait in an engine's queue, and what a policy is shown of it."""

from __future__ import annotations

import asyncio

import pytest

from tensorfold.contracts.policy import Load
from tensorfold.engine.policies import DefaultPolicy
from tensorfold.errors import Rejected
from tensorfold.ir import Request
from tensorfold.testing.scripted import Stall
from tensorfold.testing.toy_engine import events, running, toy_engine

from .one_reply import REPLY, entered, request, script, text


def test_a_full_queue_refuses_at_once_with_a_time_to_wait() -> None:
    """One runs, one waits, the third is a 503; when there is room again it is served."""

    async def main() -> None:
        stall = Stall()
        engine = toy_engine(
            [script("first", at={1: stall}), script("second"), script("third")],
            lanes=1,
            policy=DefaultPolicy(queue=1),
        )
        async with running(engine):
            first = await engine.submit(request("first"))
            await entered(stall)
            second = await engine.submit(request("second"))
            with pytest.raises(Rejected) as caught:
                await engine.submit(request("third"))
            assert caught.value.status == 503 and caught.value.retry_after
            assert (engine.status().running, engine.status().waiting) == (1, 1)
            stall.release.set()
            for stream in (first, second):
                assert text([event async for event in stream]) == bytes(REPLY).decode()
            assert text(await events(engine, request("third"))) == bytes(REPLY).decode()

    asyncio.run(main())


class Watching(DefaultPolicy):
    """Remembers the loads that it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[Load] = []

    def admit(self, request: Request, load: Load) -> None:
        self.loads.append(load)


def test_policies_see_requests_that_have_not_reached_the_engine_yet() -> None:
    """A burst that arrives between two rounds is counted request by request."""

    async def main() -> None:
        policy = Watching()
        engine = toy_engine([script("one")], policy=policy)
        async with running(engine):
            streams = await asyncio.gather(*(engine.submit(request("one")) for _ in range(3)))
            assert [load.running + load.waiting for load in policy.loads] == [0, 1, 2]
            for stream in streams:
                stream.cancel()

    asyncio.run(main())

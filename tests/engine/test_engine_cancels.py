"""Requests that nobody waits for any more, cancelled or past their deadline, end in every state and leave nothing behind."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from tensorfold.ir import Event, Finished, Started, Stopped
from tensorfold.testing.scripted import Stall
from tensorfold.testing.toy_engine import events, running, toy_engine

from .one_reply import REPLY, entered, request, script, text, until


@pytest.mark.requirement("T-157", "T-158")
@pytest.mark.parametrize("state", ["waiting", "prefilling", "running"])
def test_a_cancelled_request_ends_at_the_next_round_in_every_state(state: str) -> None:
    """Its lane is free at once, and the stream ends with `abort`."""

    async def main() -> list[Event]:
        stall = Stall()
        long = "a prompt of three chunks, to be cancelled"
        stalls = {"waiting": {}, "prefilling": {-len(long) + 3: stall}, "running": {4: stall}}
        engine = toy_engine([script(long, at=stalls[state]), script("first", at={0: stall}), script("next")], lanes=1)
        async with running(engine):
            first = await engine.submit(request("first")) if state == "waiting" else None
            stream = await engine.submit(request(long))
            await entered(stall)
            stream.cancel()
            stall.release.set()
            if first is not None:
                assert text([event async for event in first]) == bytes(REPLY).decode()
            sent = [event async for event in stream]
            assert text(await events(engine, request("next"))) == bytes(REPLY).decode()
            status = engine.status()
            assert (status.running, status.waiting) == (0, 0)
            assert status.details["positions_free"] == status.details["positions_total"]
        return sent

    sent = asyncio.run(main())
    assert sent[-2] == Stopped(0, "abort")
    assert isinstance(sent[-1], Finished)
    assert text(sent) == {"waiting": "", "prefilling": "", "running": "a rep"}[state]
    assert any(isinstance(event, Started) for event in sent) == (state != "waiting")


def test_twenty_dropped_streams_leave_the_engine_as_it_was() -> None:
    """LC-01, MT-01: streams dropped at any moment, unread; then nothing runs or waits, and a new request is served."""

    async def main() -> None:
        prompts = [f"prompt number {number} with some chunks" for number in range(20)]
        engine = toy_engine([*map(script, prompts), script("next")], lanes=3)
        async with running(engine):
            for number, prompt in enumerate(prompts):
                stream = await engine.submit(request(prompt))
                for _ in range(number % 5):
                    await anext(stream)
                stream.cancel()
            await until(lambda: not engine.status().running + engine.status().waiting)
            assert text(await events(engine, request("next"))) == bytes(REPLY).decode()
            details = engine.status().details
            assert details["positions_free"] == details["positions_total"]

    asyncio.run(main())


def test_a_submit_that_is_cancelled_queues_nothing() -> None:
    """A client that leaves while its prompt is read has left no request behind."""

    async def main() -> None:
        engine = toy_engine([script("one")])
        async with running(engine):
            task = asyncio.ensure_future(engine.submit(request("one")))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert engine.status().waiting == 0
            assert engine.status().details["requests_total"] == 0

    asyncio.run(main())


def test_a_request_past_its_deadline_is_dropped() -> None:
    """Nobody waits for it any more."""

    async def main() -> None:
        engine = toy_engine([script("late"), script("good")])
        async with running(engine):
            sent = await events(engine, request("late", deadline=1.0))
            assert Stopped(0, "abort") in sent and text(sent) == ""
            assert text(await events(engine, request("good"))) == bytes(REPLY).decode()

    asyncio.run(main())


def test_deadlines_pass_while_replies_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reply ends at the first turn after its own, with what it has; those without one, or a later one, go on."""
    clock = SimpleNamespace(now=50.0)
    monkeypatch.setattr("tensorfold.engine.loop.time", SimpleNamespace(time=lambda: clock.now))

    async def main() -> None:
        first, second = Stall(), Stall()
        engine = toy_engine([script("soon", at={3: first}), script("later", at={9: second}), script("never")])
        async with running(engine):
            deadlines = {"soon": 100.0, "later": 200.0, "never": None}
            streams = [await engine.submit(request(name, deadline=each)) for name, each in deadlines.items()]
            await entered(first)
            clock.now = 150.0
            first.release.set()
            await entered(second)
            clock.now = 250.0
            second.release.set()
            sent = [[event async for event in stream] for stream in streams]
        reply = bytes(REPLY).decode()
        assert Stopped(0, "abort") in sent[0] and Stopped(0, "abort") in sent[1]
        assert 0 < len(text(sent[0])) <= len(text(sent[1])) < len(reply)
        assert reply.startswith(text(sent[1])) and text(sent[2]) == reply

    asyncio.run(main())

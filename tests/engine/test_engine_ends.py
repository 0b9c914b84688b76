"""However an engine ends, every open stream has its own end, new requests are refused, and no thread is left."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tensorfold.contracts.step import Step
from tensorfold.engine.settings import EngineSettings
from tensorfold.errors import Rejected
from tensorfold.ir import Event, Failed, Finished, Stopped, fold
from tensorfold.testing.scripted import Stall, raises
from tensorfold.testing.toy_engine import events, toy_engine

from .one_reply import REPLY, entered, request, script, text, until


def threads() -> set[str]:
    return {thread.name.rsplit("_", 1)[0] for thread in threading.enumerate() if "tensorfold" in thread.name}


def test_closing_lets_running_replies_finish() -> None:
    """Within the grace the reply is whole, and new requests are refused."""

    async def main() -> None:
        stall = Stall()
        engine = toy_engine([script("one", at={2: stall})])
        engine.start()
        stream = await engine.submit(request("one"))
        await entered(stall)
        closing = asyncio.ensure_future(engine.close(60))
        await asyncio.sleep(0)
        with pytest.raises(Rejected, match="shutting down"):
            await engine.submit(request("two"))
        stall.release.set()
        assert text([event async for event in stream]) == bytes(REPLY).decode()
        await closing

    asyncio.run(main())
    assert not threads()


@pytest.mark.parametrize("choices", [1, 3])
def test_closing_aborts_what_does_not_finish(choices: int) -> None:
    """LC-04: every open stream gets `Stopped` with `abort` for each choice and `Finished`; no thread is left."""

    async def main() -> list[list[Event]]:
        waits = threading.Event()

        def dawdle(step: Step[Any]) -> None:
            waits.wait(0.002)

        engine = toy_engine([script(prompt, bytes(2000)) for prompt in ("one", "two")], lanes=1, on_step=dawdle)
        engine.start()
        streams = [await engine.submit(request(prompt, choices=choices)) for prompt in ("one", "two")]
        await until(lambda: engine.status().details["completion_tokens_total"] != 0)
        await engine.close(0.01)
        return [[event async for event in stream] for stream in streams]

    for sent in asyncio.run(main()):
        assert {event for event in sent if isinstance(event, Stopped)} == {
            Stopped(choice, "abort") for choice in range(choices)
        }
        assert isinstance(sent[-1], Finished)
        assert len(fold(sent).choices) == choices
    assert not threads()


def test_closing_again_cuts_the_grace_short() -> None:
    """The second signal ends at once what the first one let finish; both return."""

    async def main() -> list[Event]:
        stall = Stall()
        engine = toy_engine([script("one", at={2: stall})])
        engine.start()
        stream = await engine.submit(request("one"))
        await entered(stall)
        patient = asyncio.ensure_future(engine.close(3600))
        await asyncio.sleep(0)
        hasty = asyncio.ensure_future(engine.close(0))
        await asyncio.sleep(0.01)
        stall.release.set()
        await asyncio.gather(patient, hasty)
        return [event async for event in stream]

    sent = asyncio.run(main())
    assert Stopped(0, "abort") in sent or Stopped(0, "end") in sent
    assert isinstance(sent[-1], Finished)
    assert not threads()


def test_closing_does_not_wait_for_a_step_that_never_returns() -> None:
    """Streams end with `Failed`, and the process may go."""

    async def main() -> None:
        stall = Stall()
        engine = toy_engine([script("one", at={2: stall})], settings=EngineSettings(stop_limit=0.05))
        engine.start()
        stream = await engine.submit(request("one"))
        await entered(stall)
        await engine.close(0)
        assert isinstance([event async for event in stream][-1], Failed)
        stall.release.set()
        await until(lambda: not threads())

    asyncio.run(main())


def test_an_engine_that_never_started_can_be_closed() -> None:
    """A start that fails halfway leaves nothing behind."""

    async def main() -> None:
        await toy_engine().close(0)

    asyncio.run(main())
    assert not threads()


def test_an_engine_whose_thread_has_died_says_so_and_refuses() -> None:
    """Open streams end with `Failed`, health is bad, and no request waits for ever."""

    async def main() -> None:
        engine = toy_engine([script("one", at={2: raises(SystemExit())})])
        engine.start()
        sent = await events(engine, request("one"))
        assert isinstance(sent[-1], Failed)
        await until(lambda: not engine.status().healthy)
        assert "engine thread has ended" in (engine.status().problem or "")
        with pytest.raises(Rejected):
            await engine.submit(request("one"))
        await engine.close(0)

    asyncio.run(main())

"""The engine that replays given events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from tensorfold.contracts.engine import ModelInfo
from tensorfold.errors import GenerationFailed, InvalidRequest, Rejected
from tensorfold.ir import Failed, Finished, Queued, Request, Stopped, TextDelta, TextPrompt, Timings, Usage
from tensorfold.testing.scripted_engine import ScriptedEngine, ScriptItem

MODEL = ModelInfo(
    id="m",
    aliases=(),
    created=0,
    family="f",
    backend="b",
    window=100,
    trained_window=100,
    vocabulary=10,
    parameters=1,
)
REQUEST = Request(id="r", prompt=TextPrompt("hi"), choices=2)
FINISHED = Finished(Usage(2, 2), Timings(), ("a", "b"))
WHOLE = (TextDelta(0, "x"), Stopped(0, "end"), Stopped(1, "end"), FINISHED)


def engine(*items: ScriptItem) -> ScriptedEngine:
    def script(request: Request) -> Iterable[ScriptItem]:
        return items

    return ScriptedEngine(MODEL, script)


def test_it_replays_its_script_behind_queued() -> None:
    """`Queued` is put in front when the script does not begin with it; requests are remembered."""

    async def main() -> None:
        for given, first in (((), Queued(2)), ((Queued(7),), Queued(7))):
            scripted = engine(*given, *WHOLE)
            stream = await scripted.submit(REQUEST)
            assert scripted.status().running == 1
            assert [event async for event in stream] == [first, *WHOLE]
            assert scripted.requests == [REQUEST]
            assert scripted.status().running == 0

    asyncio.run(main())


def test_errors_are_raised_before_the_first_event_and_sent_behind_it() -> None:
    """As the real engine refuses and fails."""

    async def main() -> None:
        with pytest.raises(InvalidRequest, match="no"):
            await engine(0.001, InvalidRequest("no")).submit(REQUEST)
        stream = await engine(TextDelta(0, "x"), GenerationFailed("broken")).submit(REQUEST)
        assert [event async for event in stream][-1] == Failed("broken")
        stream = await engine(TextDelta(0, "x")).submit(REQUEST)
        assert isinstance([event async for event in stream][-1], Failed), "a script without an end is an error"

    asyncio.run(main())


def test_a_cancelled_stream_wakes_from_a_wait_and_ends() -> None:
    """The wait is cut short, and the request is remembered as cancelled."""

    async def main() -> None:
        scripted = engine(TextDelta(0, "x"), Stopped(0, "end"), 3600.0, *WHOLE)
        stream = await scripted.submit(REQUEST)
        assert [await anext(stream) for _ in range(3)][-1] == Stopped(0, "end")
        reading = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        stream.cancel()
        stream.cancel()
        assert await reading == Stopped(1, "abort")
        assert isinstance([event async for event in stream][-1], Finished)
        assert scripted.cancelled == ["r"]
        assert scripted.status().running == 0

    asyncio.run(main())


def test_cancelling_after_the_end_is_harmless() -> None:
    """It is not remembered as cancelled."""

    async def main() -> None:
        scripted = engine(*WHOLE)
        stream = await scripted.submit(REQUEST)
        assert [event async for event in stream]
        stream.cancel()
        assert scripted.cancelled == []

    asyncio.run(main())


def test_closing_aborts_what_is_open_and_refuses_what_comes() -> None:
    """As the real engine shuts down."""

    async def main() -> None:
        scripted = engine(3600.0, *WHOLE)
        waiting = engine(Queued(1), 3600.0, *WHOLE)
        stream = await waiting.submit(REQUEST)
        await waiting.close(0.01)
        assert isinstance([event async for event in stream][-1], Finished)
        await scripted.close(0)
        with pytest.raises(Rejected):
            await scripted.submit(REQUEST)

    asyncio.run(main())


def test_its_health_is_what_the_test_says() -> None:
    """`problem` makes it unhealthy."""
    scripted = engine()
    assert scripted.status().healthy
    scripted.problem = "stuck"
    assert (scripted.status().healthy, scripted.status().problem) == (False, "stuck")

"""One request's events on their way to its client, from engines that are asked for each and from those that push."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from tensorfold.contracts.engine import EventStream, PushesEvents
from tensorfold.engine.events import LocalStream, Postbox
from tensorfold.http.run import Run
from tensorfold.ir import (
    Event,
    Failed,
    Finished,
    Queued,
    Request,
    Stopped,
    TextDelta,
    TextPrompt,
    Timings,
    Usage,
)

REQUEST = Request(id="r", prompt=TextPrompt("x"))
REPLY: tuple[Event, ...] = (
    Queued(1),
    TextDelta(0, "a"),
    Stopped(0, "end"),
    Finished(Usage(1, 2), Timings(), ("00",)),
)


class Asked:
    """A stream that is asked for each event."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = iter(events)
        self.cancelled = False

    def __aiter__(self) -> Asked:
        return self

    async def __anext__(self) -> Event:
        await asyncio.sleep(0)
        for event in self._events:
            return event
        raise StopAsyncIteration

    def cancel(self) -> None:
        self.cancelled = True


def pushed(events: Iterable[Event]) -> LocalStream:
    """A stream that pushes: the first events wait, the others come on later turns of the loop."""
    loop = asyncio.get_running_loop()
    stream = LocalStream(Postbox(loop), lambda: None, lambda _: None)
    first, *others = events
    stream.push(first)

    def later() -> None:
        if others:
            stream.push(others.pop(0))
            loop.call_soon(later)

    loop.call_soon(later)
    return stream


Kind = Callable[[Iterable[Event]], "Asked | LocalStream"]


@pytest.fixture(params=[Asked, pushed], ids=["asked", "pushed"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """How the stream hands its events over."""
    made: Kind = request.param
    return made


def test_only_streams_that_say_so_push() -> None:
    async def main() -> None:
        assert isinstance(pushed(REPLY), PushesEvents)
        assert not isinstance(Asked(REPLY), PushesEvents)

    asyncio.run(main())


def test_every_event_is_handed_on_in_order_up_to_the_last(kind: Kind) -> None:
    async def main() -> None:
        run = Run(REQUEST, _stream(kind(REPLY)), 0.0)
        assert await run.first() == REPLY[0]
        found: list[Event] = []

        def deliver(event: Event) -> bool:
            found.append(event)
            return True

        await run.pump(deliver)
        assert tuple(found) == REPLY[1:]
        assert (run.outcome().status, run.outcome().reason, run.outcome().usage) == (200, "end", Usage(1, 2))

    asyncio.run(main())


def test_a_receiver_that_takes_no_more_ends_the_request_with_an_error(kind: Kind) -> None:
    """The engine is told, and what it still says is dropped."""

    async def main() -> None:
        stream = kind(REPLY)
        run = Run(REQUEST, _stream(stream), 0.0)
        await run.first()
        found: list[Event] = []

        def deliver(event: Event) -> bool:
            found.append(event)
            return not isinstance(event, TextDelta)

        await run.pump(deliver)
        for _ in range(10):
            await asyncio.sleep(0)
        assert isinstance(found[-1], Failed) and "too slowly" in found[-1].message
        assert found[:-1] == [TextDelta(0, "a")]
        assert stream.cancelled and run.outcome().status == 500

    asyncio.run(main())


def test_a_receiver_that_fails_fails_its_own_request(kind: Kind) -> None:
    """Raised where the request is awaited: the delivery of the others' events goes on."""

    async def main() -> None:
        run = Run(REQUEST, _stream(kind(REPLY)), 0.0)
        await run.first()

        def deliver(event: Event) -> bool:
            raise ValueError("a wombat in the works")

        with pytest.raises(ValueError, match="wombat"):
            await run.pump(deliver)

    asyncio.run(main())


def _stream(stream: Asked | LocalStream) -> EventStream:
    return stream

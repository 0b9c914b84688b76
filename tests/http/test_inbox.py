"""The queue between a request's events and its client."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tensorfold.http.connection import ClientGone
from tensorfold.http.inbox import Inbox
from tensorfold.ir import Event, Started, TextDelta, ThinkingDelta, ToolCallDelta


def taken(inbox: Inbox) -> list[Event]:
    return asyncio.run(inbox.take())


def test_events_come_out_in_order_all_at_once() -> None:
    inbox = Inbox(1000)
    for text in "abc":
        assert inbox.put(TextDelta(0, text))
    assert taken(inbox) == [TextDelta(0, "a"), TextDelta(0, "b"), TextDelta(0, "c")]


def test_a_reader_that_waits_is_woken() -> None:
    async def scene() -> list[Event]:
        inbox = Inbox(1000)
        reading = asyncio.create_task(inbox.take())
        await asyncio.sleep(0)
        inbox.put(TextDelta(0, "a"))
        inbox.put(TextDelta(0, "b"))
        return await reading

    assert asyncio.run(scene()) == [TextDelta(0, "a"), TextDelta(0, "b")]


def test_a_hang_up_goes_before_everything_that_waits() -> None:
    inbox = Inbox(1000)
    inbox.put(TextDelta(0, "a"))
    inbox.hang_up()
    assert inbox.gone
    assert inbox.put(TextDelta(0, "b"))
    inbox.end(TextDelta(0, "c"))
    with pytest.raises(ClientGone):
        taken(inbox)


def test_a_reader_that_waits_is_told_of_a_hang_up() -> None:
    async def scene() -> None:
        inbox = Inbox(1000)
        reading = asyncio.create_task(inbox.take())
        await asyncio.sleep(0)
        inbox.hang_up()
        await reading

    with pytest.raises(ClientGone):
        asyncio.run(scene())


def test_a_silence_gives_nothing_once() -> None:
    inbox = Inbox(1000)
    inbox.silence()
    assert taken(inbox) == []
    inbox.put(TextDelta(0, "a"))
    assert taken(inbox) == [TextDelta(0, "a")]


def test_past_the_bound_events_are_refused_and_the_last_is_not() -> None:
    inbox = Inbox(1000)
    accepted = 0
    while inbox.put(TextDelta(0, "x" * 100)):
        accepted += 1
    assert 5 <= accepted <= 11
    inbox.end(TextDelta(0, "end"))
    assert taken(inbox)[-1] == TextDelta(0, "end")
    assert inbox.put(TextDelta(0, "again"))


async def turns() -> None:
    """Let the loop turn until nothing is left that was put off to its next turn."""
    for _ in range(5):
        await asyncio.sleep(0)


class Pipe:
    """An outlet that remembers what is written."""

    def __init__(self) -> None:
        self.ready = True
        self.written: list[bytes] = []

    def write(self, piece: bytes) -> None:
        self.written.append(piece)


def encoded(events: list[Event]) -> bytes:
    return b"".join(event.text.encode() for event in events if isinstance(event, TextDelta)) if events else b"-"


def test_a_relay_writes_in_one_piece_what_comes_in_one_turn_of_the_loop() -> None:
    """Two events of one turn are one piece, a silence is one of its own, and the last event ends the relay."""

    async def scene() -> list[bytes]:
        inbox, pipe = Inbox(1000), Pipe()
        inbox.put(TextDelta(0, "a"))
        relaying = asyncio.create_task(inbox.relay(pipe, encoded))
        for text in "bcd":
            await turns()
            inbox.put(TextDelta(0, text))
            inbox.put(TextDelta(0, text))
        await turns()
        inbox.silence()
        await turns()
        inbox.end(TextDelta(0, "z"))
        await relaying
        assert inbox.over
        return pipe.written

    assert asyncio.run(scene()) == [b"a", b"bb", b"cc", b"dd", b"-", b"z"]


def test_a_relay_stops_where_its_outlet_is_not_ready_and_loses_nothing() -> None:
    """What has come meanwhile is taken as before, in order; a later relay goes on behind it."""

    async def scene() -> tuple[list[bytes], list[Event]]:
        inbox, pipe = Inbox(1000), Pipe()
        relaying = asyncio.create_task(inbox.relay(pipe, encoded))
        await asyncio.sleep(0)
        inbox.put(TextDelta(0, "a"))
        await turns()
        pipe.ready = False
        inbox.put(TextDelta(0, "b"))
        await relaying
        inbox.put(TextDelta(0, "c"))
        waiting = await inbox.take()
        pipe.ready = True
        inbox.put(TextDelta(0, "d"))
        inbox.end(TextDelta(0, "e"))
        await inbox.relay(pipe, encoded)
        return pipe.written, waiting

    written, waiting = asyncio.run(scene())
    assert (written, waiting) == ([b"a", b"de"], [TextDelta(0, "b"), TextDelta(0, "c")])


def test_a_relay_is_told_of_a_hang_up_and_writes_nothing_behind_it() -> None:
    async def scene() -> None:
        inbox, pipe = Inbox(1000), Pipe()
        relaying = asyncio.create_task(inbox.relay(pipe, encoded))
        await asyncio.sleep(0)
        inbox.put(TextDelta(0, "a"))
        inbox.hang_up()
        try:
            await relaying
        finally:
            assert pipe.written == []

    with pytest.raises(ClientGone):
        asyncio.run(scene())


def test_what_an_encoder_raises_in_a_relay_comes_out_of_it() -> None:
    async def scene() -> None:
        inbox = Inbox(1000)
        inbox.put(TextDelta(0, "a"))

        def fails(events: list[Event]) -> bytes:
            raise ValueError(events)

        await inbox.relay(Pipe(), fails)

    with pytest.raises(ValueError, match="'a'"):
        asyncio.run(scene())


deltas = some.one_of(
    some.builds(TextDelta, some.integers(0, 1), some.text(max_size=3)),
    some.builds(ThinkingDelta, some.integers(0, 1), some.text(max_size=3)),
    some.builds(ToolCallDelta, some.just(0), some.integers(0, 1), some.none(), some.none(), some.text(max_size=3)),
    some.builds(
        ToolCallDelta, some.just(0), some.integers(0, 1), some.just("id"), some.just("f"), some.text(max_size=3)
    ),
    some.builds(Started, some.just(0)),
)


def spelled(events: list[Event]) -> list[tuple[object, ...]]:
    """One entry a character, so that it does not matter how texts were cut."""
    letters: list[tuple[object, ...]] = []
    for event in events:
        match event:
            case TextDelta(choice, text) | ThinkingDelta(choice, text):
                letters += [(type(event), choice, letter) for letter in text]
            case ToolCallDelta(choice, index, id, name, arguments):
                letters += [("call", choice, index, id, name)] if id else []
                letters += [("argument", choice, index, letter) for letter in arguments]
            case _:
                letters.append((event,))
    return letters


@given(some.lists(deltas, min_size=60, max_size=200))
def test_joining_what_waits_loses_and_reorders_nothing(events: list[Event]) -> None:
    inbox = Inbox(1_000_000)
    for event in events:
        assert inbox.put(event)
    assert spelled(taken(inbox)) == spelled(events)


def test_a_long_wait_costs_events_by_the_text_and_not_by_the_piece() -> None:
    inbox = Inbox(10_000_000)
    for _ in range(100_000):
        assert inbox.put(TextDelta(0, "word "))
    events = taken(inbox)
    assert len(events) < 400
    assert sum(len(event.text) for event in events if isinstance(event, TextDelta)) == 500_000

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
    assert len(events) < 300
    assert sum(len(event.text) for event in events if isinstance(event, TextDelta)) == 500_000

"""From the engine thread to the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from tensorfold.engine.events import LocalStream, Postbox
from tensorfold.ir import (
    Event,
    Finished,
    Progress,
    Queued,
    Stopped,
    TextDelta,
    ThinkingDelta,
    Timings,
    TokenInfo,
    ToolCallDelta,
    Usage,
    fold,
)

FINISHED = Finished(Usage(1, 1), Timings(), ("",))


def nothing() -> None:
    return


def stream(postbox: Postbox, on_cancel: Callable[[], None] = nothing) -> LocalStream:
    return LocalStream(postbox, on_cancel, lambda _: None)


async def unread(*sent: Event) -> list[Event]:
    """What a reader finds that comes after everything has arrived."""
    mailbox = stream(Postbox(asyncio.get_running_loop()))
    for event in sent:
        mailbox.push(event)
    return [event async for event in mailbox]


def test_what_is_posted_leaves_with_its_own_flush() -> None:
    """Never with an earlier one whose call comes late: a round's events go out when its gauges are read, not before."""

    async def main() -> None:
        postbox = Postbox(asyncio.get_running_loop())
        mailbox = stream(postbox)
        found: list[Event] = []
        mailbox.attach(found.append)
        mailbox.post(TextDelta(0, "one"))
        postbox.flush()
        mailbox.post(FINISHED)
        for _ in range(3):
            await asyncio.sleep(0)
        assert found == [TextDelta(0, "one")]
        postbox.flush()
        await asyncio.sleep(0)
        assert found == [TextDelta(0, "one"), FINISHED]

    asyncio.run(main())


def test_a_round_wakes_the_loop_once_for_all_streams() -> None:
    """Fifty streams with two events each cost one wake-up."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        wakes = 0
        original = loop.call_soon_threadsafe

        def counted(*args: object) -> asyncio.Handle:
            nonlocal wakes
            wakes += 1
            return original(*args)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = counted  # type: ignore[assignment,method-assign]
        try:
            postbox = Postbox(loop)
            streams = [stream(postbox) for _ in range(50)]
            for each in streams:
                each.post(TextDelta(0, "a"))
                each.post(FINISHED)
            postbox.flush()
            postbox.flush()
            assert [[event async for event in each] for each in streams] == [[TextDelta(0, "a"), FINISHED]] * 50
            assert wakes == 1
        finally:
            del loop.call_soon_threadsafe

    asyncio.run(main())


def test_deltas_that_wait_are_merged() -> None:
    """A slow reader finds one delta with all the text and all the tokens, not a queue of them."""
    first, second = TokenInfo(1, b"a", -1.0), TokenInfo(2, b"b", -2.0)
    found = asyncio.run(unread(Queued(3), TextDelta(0, "a", (first,)), TextDelta(0, "b", (second,)), FINISHED))
    assert found == [Queued(3), TextDelta(0, "ab", (first, second)), FINISHED]


def test_a_merged_delta_has_the_later_count() -> None:
    """It tells the tokens up to its own end."""
    sent: list[Event] = [
        *(TextDelta(0, "a", (), count) for count in (1, 2)),
        *(
            ToolCallDelta(0, 0, "call_0" if count == 3 else None, "f" if count == 3 else None, "x", count)
            for count in (3, 7)
        ),
    ]
    found = asyncio.run(unread(*sent, FINISHED))
    assert found == [TextDelta(0, "aa", (), 2), ToolCallDelta(0, 0, "call_0", "f", "xx", 7), FINISHED]


def test_choices_are_merged_apart() -> None:
    """Deltas of several choices that alternate wait as one delta each."""
    alternating: list[Event] = [TextDelta(choice, text) for text in "xyz" for choice in (0, 1)]
    found = asyncio.run(unread(*alternating, Stopped(0, "end"), TextDelta(1, "!"), FINISHED))
    assert found == [TextDelta(0, "xyz"), TextDelta(1, "xyz!"), Stopped(0, "end"), FINISHED]


def test_kinds_and_calls_are_never_mixed() -> None:
    """Reasoning, text and each call stay what they are, in their order."""
    sent: list[Event] = [
        ThinkingDelta(0, "t"),
        TextDelta(0, "a"),
        ToolCallDelta(0, 0, "call_0", "f", ""),
        ToolCallDelta(0, 0, None, None, "{"),
        ToolCallDelta(0, 0, None, None, "}"),
        ToolCallDelta(0, 1, "call_1", "f", ""),
        TextDelta(0, "b"),
        FINISHED,
    ]
    assert asyncio.run(unread(*sent)) == [*sent[:2], ToolCallDelta(0, 0, "call_0", "f", "{}"), *sent[5:]]


def test_only_the_newest_progress_waits() -> None:
    """Older progress is worthless once there is newer."""
    found = asyncio.run(unread(Progress(1, 9, 0, 0.1), Progress(5, 9, 0, 0.2), TextDelta(0, "a"), FINISHED))
    assert found == [Progress(5, 9, 0, 0.2), TextDelta(0, "a"), FINISHED]


def test_a_stalled_reader_holds_a_bounded_queue() -> None:
    """A hundred thousand deltas wait as one."""
    assert len(asyncio.run(unread(*[TextDelta(0, "word ")] * 100_000, FINISHED))) == 2


DELTAS = st.one_of(
    st.builds(TextDelta, st.integers(0, 2), st.text("ab", max_size=2)),
    st.builds(ThinkingDelta, st.integers(0, 2), st.text("ab", max_size=2)),
    st.builds(ToolCallDelta, st.integers(0, 2), st.just(0), st.none(), st.none(), st.text("ab", max_size=2)),
)


@given(st.lists(DELTAS, max_size=20), st.lists(st.booleans(), max_size=20))
def test_whatever_the_readers_pace_the_answer_is_the_same(deltas: list[Event], reads: list[bool]) -> None:
    """Merging changes how many deltas there are, and nothing that they say."""

    async def paced() -> list[Event]:
        mailbox = stream(Postbox(asyncio.get_running_loop()))
        found: list[Event] = []
        waiting = 0
        for number, event in enumerate(sent):
            mailbox.push(event)
            waiting = 1
            if number < len(reads) and reads[number] and waiting:
                found.append(await anext(mailbox))
        return found + [event async for event in mailbox]

    choices = {event.choice for event in deltas if isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta)}
    sent: list[Event] = [*deltas, *(Stopped(choice, "end") for choice in choices), FINISHED]
    assert fold(asyncio.run(paced())) == fold(sent)


@given(st.lists(DELTAS, max_size=20), st.integers(0, 20))
def test_who_attaches_gets_what_waits_and_then_everything_as_it_comes(deltas: list[Event], before: int) -> None:
    """However late it is: the same answer, the last event once, and nothing after it."""

    async def main() -> list[Event]:
        mailbox = stream(Postbox(asyncio.get_running_loop()))
        found: list[Event] = []
        for number, event in enumerate(sent):
            if number == before:
                mailbox.attach(found.append)
            mailbox.push(event)
        if before >= len(sent):
            mailbox.attach(found.append)
        mailbox.push(TextDelta(0, "late"))
        return found

    choices = {event.choice for event in deltas if isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta)}
    sent: list[Event] = [*deltas, *(Stopped(choice, "end") for choice in choices), FINISHED]
    found = asyncio.run(main())
    assert fold(found) == fold(sent)
    assert [event for event in found if isinstance(event, Finished)] == [FINISHED]
    assert found[-1] is FINISHED


def test_nothing_comes_after_the_end() -> None:
    """Late events of a stream that has ended are dropped, and iterating again ends at once."""

    async def main() -> None:
        mailbox = stream(Postbox(asyncio.get_running_loop()))
        mailbox.push(FINISHED)
        mailbox.push(TextDelta(0, "late"))
        assert [event async for event in mailbox] == [FINISHED]
        assert [event async for event in mailbox] == []

    asyncio.run(main())


def test_cancelling_wakes_the_engine_once_and_not_after_the_end() -> None:
    """A second cancel, or one of a stream that has ended, is harmless."""
    calls: list[None] = []

    async def main() -> None:
        postbox = Postbox(asyncio.get_running_loop())
        open_stream, ended = (stream(postbox, lambda: calls.append(None)) for _ in range(2))
        ended.push(FINISHED)
        for each in (open_stream, open_stream, ended):
            each.cancel()
        assert (open_stream.cancelled, ended.cancelled) == (True, False)

    asyncio.run(main())
    assert len(calls) == 1


def test_events_for_a_loop_that_is_closed_are_dropped() -> None:
    """The engine thread survives a front that has gone."""
    loop = asyncio.new_event_loop()
    postbox = Postbox(loop)
    mailbox = stream(postbox)
    loop.close()
    mailbox.post(FINISHED)
    postbox.flush()

"""Kept prefixes: what is computed once, what is not computed again, and what that never changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tensorfold.contracts.step import Step
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import (
    Answer,
    Finished,
    Limits,
    Progress,
    Request,
    Sampling,
    Started,
    TextDelta,
    TextPrompt,
    TokensPrompt,
    fold,
)
from tensorfold.testing.scripted import Stall
from tensorfold.testing.toy_engine import answer, events, running, toy_engine

CHUNK = 1024
OPEN = 200
"""The token that opens a message."""


def turn(number: int, length: int) -> tuple[int, ...]:
    """A message of so many tokens."""
    return (OPEN, *((number * 7 + place * 3) % 90 + 30 for place in range(length - 1)))


SYSTEM = turn(1, 700)


def request(*turns: Sequence[int], reply: int = 12, **fields: Any) -> Request:
    ids = tuple(token for each in turns for token in each)
    return Request(
        id="r",
        prompt=TokensPrompt((*ids, OPEN, 65)),
        limits=Limits(max_tokens=reply, ignore_eos=True),
        sampling=fields.pop("sampling", Sampling(temperature=0.8, seed=3)),
        **fields,
    )


class Chunks:
    """Counts the prompt tokens that are computed."""

    def __init__(self) -> None:
        self.tokens = 0
        self.starts: list[int] = []

    def __call__(self, step: Step[Any]) -> None:
        if step.kind == "chunk":
            self.tokens += step.rows
            self.starts.append(step.segments[0].start)


async def one_by_one(*requests: Request, chunks: Chunks | None = None, **engine_fields: Any) -> list[Answer]:
    """One after the other, on one engine."""
    engine = toy_engine(chunk=CHUNK, opening=OPEN, on_step=chunks, **engine_fields)
    async with running(engine):
        return [await answer(engine, each) for each in requests]


def in_turn(*requests: Request, **fields: Any) -> list[Answer]:
    """The same, from outside of an event loop."""
    return asyncio.run(one_by_one(*requests, **fields))


async def fresh(each: Request) -> Answer:
    """On an engine of its own that keeps nothing."""
    (found,) = await one_by_one(each, settings=EngineSettings(prefix_bytes=0))
    assert found.usage.cached_tokens == 0
    return found


def alone(each: Request) -> Answer:
    """The same, from outside of an event loop."""
    return asyncio.run(fresh(each))


def same(found: Answer, reference: Answer) -> None:
    assert (found.choices, found.token_sha) == (reference.choices, reference.token_sha)


@pytest.mark.requirement("T-275", "T-290")
@pytest.mark.parametrize("equal", [True, False], ids=["one numerics", "two numerics"])
def test_a_prompt_that_comes_again_is_computed_from_its_last_start(equal: bool) -> None:
    """EX-03: the same reply, the last chunk computed again, the rest counted as cached."""
    chunks = Chunks()
    each = request(SYSTEM, turn(2, 400))
    first, second, third = in_turn(each, each, each, chunks=chunks, equal=equal)
    assert chunks.starts[:3] == [0, 700, 1100], "the last start is at a message that opens far enough behind"
    assert first.usage.cached_tokens == 0
    assert second.usage.cached_tokens == third.usage.cached_tokens == 1100
    assert chunks.tokens == 1102 + 2 + 2
    for found in (first, second, third):
        same(found, alone(each))


@pytest.mark.parametrize("equal", [True, False], ids=["one numerics", "two numerics"])
@pytest.mark.parametrize("prompt", [(65,), (65, 66)])
@pytest.mark.parametrize("reply", [1, 16])
def test_the_shortest_prompts_can_be_repeated(prompt: tuple[int, ...], reply: int, equal: bool) -> None:
    """EX-03: with one token and a reply of one, too: there is always something left to compute."""
    each = Request(id="r", prompt=TokensPrompt(prompt), limits=Limits(max_tokens=reply, ignore_eos=True))
    found = in_turn(each, each, each, equal=equal)
    for one in found:
        same(one, found[0])
        assert one.usage.cached_tokens < one.usage.prompt_tokens


def test_a_prompt_sent_three_times_gives_three_equal_replies() -> None:
    """EX-03: also a prompt of one token with a reply of one token."""

    async def main() -> list[Answer]:
        engine = toy_engine([])
        async with running(engine):
            asked = [
                Request(id=prompt, prompt=TextPrompt(prompt), limits=Limits(max_tokens=reply))
                for prompt, reply in (("H", 1), ("Hello", 16))
            ]
            answers = [await answer(engine, each) for each in asked for _ in range(3)]
            assert engine.status().healthy
        return answers

    answers = asyncio.run(main())
    assert len({each.token_sha for each in answers[:3]}) == len({each.token_sha for each in answers[3:]}) == 1
    assert all(each.usage.cached_tokens < each.usage.prompt_tokens for each in answers)


def test_conversations_share_their_system_message() -> None:
    """EX-02: the second conversation begins behind it, and its reply is that of a fresh server."""
    owls = request(SYSTEM, turn(2, 300))
    hi = request(SYSTEM, turn(3, 20))
    first, second = in_turn(owls, hi, equal=False)
    assert first.usage.cached_tokens == 0
    assert second.usage.cached_tokens == len(SYSTEM), "the last start within what both have in common"
    same(second, alone(hi))


def test_the_end_of_the_first_message_is_kept_though_nobody_shared_it_yet() -> None:
    """A start that lies exactly there serves the next conversation whole."""
    system = turn(1, 400)
    first, second = in_turn(request(system, turn(2, 900)), request(system, turn(3, 20)), equal=False)
    assert (first.usage.cached_tokens, second.usage.cached_tokens) == (0, 400)


def test_a_first_message_that_ends_within_a_chunk_is_kept_up_to_that_chunk() -> None:
    """Its end is no start here, so the last start before it serves."""
    system = turn(1, 1100)
    first, second = in_turn(request(system, turn(2, 900)), request(system, turn(3, 20)), equal=False)
    assert (first.usage.cached_tokens, second.usage.cached_tokens) == (0, 1024)


def test_the_next_turn_begins_where_the_last_message_opened() -> None:
    """The reply comes back as part of the history and is computed by the prompt's plan."""
    history = (SYSTEM, turn(2, 300))
    chunks = Chunks()
    first = request(*history)
    second = request(*history, (*turn(4, 40),), turn(5, 300))
    _, found = in_turn(first, second, equal=False, chunks=chunks)
    assert found.usage.cached_tokens == 1000
    same(found, alone(second))


def test_a_reply_is_kept_where_chunks_and_rows_give_the_same_bits() -> None:
    """The next turn then begins behind the reply, at whatever place it ended."""

    async def main() -> tuple[Answer, Answer]:
        engine = toy_engine(chunk=CHUNK, opening=OPEN)
        async with running(engine):
            first = request(SYSTEM, turn(2, 300), reply=40, logprobs=0)
            one = await answer(engine, first)
            assert isinstance(first.prompt, TokensPrompt)
            reply = tuple(token.id for token in one.choices[0].tokens)
            second = Request(
                id="r", prompt=TokensPrompt((*first.prompt.ids, *reply, *turn(6, 30))), limits=Limits(max_tokens=9)
            )
            two = await answer(engine, second)
            same(two, await fresh(second))
            return one, two

    one, two = asyncio.run(main())
    assert two.usage.cached_tokens == one.usage.prompt_tokens + 39, "all but the last token, which no step has run"


def test_a_reply_is_not_kept_where_they_differ() -> None:
    each = request(SYSTEM, reply=5, logprobs=0)

    async def main() -> Answer:
        engine = toy_engine(chunk=CHUNK, opening=OPEN, equal=False)
        async with running(engine):
            one = await answer(engine, each)
            assert isinstance(each.prompt, TokensPrompt)
            reply = tuple(token.id for token in one.choices[0].tokens)
            more = Request(id="r", prompt=TokensPrompt((*each.prompt.ids, *reply, 70)), limits=Limits(max_tokens=2))
            return await answer(engine, more)

    assert asyncio.run(main()).usage.cached_tokens == 700


def test_nothing_is_kept_when_the_cache_is_off() -> None:
    each = request(SYSTEM)
    for found in in_turn(each, each, settings=EngineSettings(prefix_bytes=0)):
        assert found.usage.cached_tokens == 0


def test_started_and_progress_tell_what_was_cached() -> None:
    """The first progress of a resumed prompt is beyond what came from the cache."""
    each = request(SYSTEM, turn(2, 400), progress=True)

    async def main() -> list[Any]:
        engine = toy_engine(chunk=CHUNK, opening=OPEN)
        async with running(engine):
            await events(engine, each)
            return list(await events(engine, each))

    sent = asyncio.run(main())
    assert Started(1100) in sent
    progress = [event for event in sent if isinstance(event, Progress)]
    assert [(event.processed, event.total, event.cached) for event in progress] == [(1102, 1102, 1100)]


def test_requests_wait_for_a_prefix_that_another_is_computing() -> None:
    """Four chats over one long new beginning: it is computed once, and all replies are as if alone."""
    chats = [request(SYSTEM, turn(2, 1500), turn(number, 30)) for number in range(10, 14)]
    chunks, stall = Chunks(), Stall()

    def on_step(step: Step[Any]) -> None:
        chunks(step)
        stall()

    async def main() -> list[Answer]:
        engine = toy_engine(chunk=CHUNK, opening=OPEN, on_step=on_step, equal=False)
        async with running(engine):
            streams = [await engine.submit(each) for each in chats]
            stall.release.set()
            return [fold([event async for event in stream]) for stream in streams]

    found = asyncio.run(main())
    assert chunks.starts.count(0) == 1
    assert sorted(each.usage.cached_tokens for each in found) == [0, 2200, 2200, 2200]
    for each, chat in zip(found, chats, strict=True):
        same(each, alone(chat))


def test_who_waited_for_a_prefix_computes_it_when_the_other_leaves() -> None:
    """A client that goes away in the middle of the shared part costs the others nothing but time."""
    chats = [request(SYSTEM, turn(2, 1500), turn(number, 30)) for number in (10, 11)]
    chunks, stall = Chunks(), Stall()

    def on_step(step: Step[Any]) -> None:
        chunks(step)
        if len(chunks.starts) == 2:
            stall()

    async def main() -> Answer:
        engine = toy_engine(chunk=CHUNK, opening=OPEN, on_step=on_step, equal=False)
        async with running(engine):
            first = await engine.submit(chats[0])
            second = await engine.submit(chats[1])
            while not stall.entered.is_set():
                await asyncio.sleep(0.001)
            first.cancel()
            stall.release.set()
            return fold([event async for event in second])

    same(asyncio.run(main()), alone(chats[1]))
    assert chunks.starts.count(0) <= 2


def test_foreground_does_not_wait_for_a_background_prompt() -> None:
    """It computes the shared beginning itself."""
    back = request(SYSTEM, turn(2, 1500), turn(10, 30), priority="background")
    front = request(SYSTEM, turn(2, 1500), turn(11, 30))
    chunks, stall = Chunks(), Stall()

    def on_step(step: Step[Any]) -> None:
        chunks(step)
        stall()

    async def main() -> list[Answer]:
        engine = toy_engine(chunk=CHUNK, opening=OPEN, on_step=on_step, equal=False)
        async with running(engine):
            first = await engine.submit(back)
            while not stall.entered.is_set():
                await asyncio.sleep(0.001)
            second = await engine.submit(front)
            stall.release.set()
            return [fold([event async for event in stream]) for stream in (second, first)]

    for found, each in zip(asyncio.run(main()), (front, back), strict=True):
        same(found, alone(each))
    assert chunks.starts.count(0) == 1, "what was kept already serves"
    assert chunks.starts.count(700) == 2


def test_kept_prefixes_make_room_for_requests() -> None:
    """Memory that they hold counts as free, and is given up, the least recently used first, when a request needs it."""
    many = [request(turn(number, 600), reply=8) for number in range(20, 26)]

    async def main() -> None:
        engine = toy_engine(
            chunk=CHUNK,
            opening=OPEN,
            positions=2048,
            window=2048,
            lanes=2,
            equal=False,
            settings=EngineSettings(growth=8),
        )
        async with running(engine):
            for each in (*many, *many):
                same(await answer(engine, each), await fresh(each))
            details = engine.status().details
            assert details["positions_free"] == details["positions_total"] == 2048
            assert details["preemptions_total"] == 0
            assert details["prefixes"] == 3
            # Of twelve kept, for each came back after it had been given up.
            assert details["prefix_evictions_total"] == 9
            again = await answer(engine, many[-1])
            assert again.usage.cached_tokens == 600

    asyncio.run(main())


def test_the_cache_holds_no_more_bytes_than_it_may() -> None:
    """`prefix_bytes` is a bound; the newest prefixes stay."""
    each = [request(turn(number, 600)) for number in range(30, 36)]
    page = 8 * 64

    async def main() -> tuple[Any, list[int]]:
        engine = toy_engine(chunk=CHUNK, opening=OPEN, equal=False, settings=EngineSettings(prefix_bytes=20 * page))
        async with running(engine):
            for one in each:
                await answer(engine, one)
            details = engine.status().details
            return details["prefix_bytes"], [
                (await answer(engine, one)).usage.cached_tokens for one in (each[-1], each[0])
            ]

    held, cached = asyncio.run(main())
    assert 0 < held <= 20 * page
    assert cached == [600, 0]


def test_replies_that_outgrow_the_memory_take_that_of_kept_prefixes_first() -> None:
    """Nobody is preempted while there is a prefix to give up."""
    long = request(turn(40, 300), reply=900)

    async def main() -> None:
        engine = toy_engine(
            chunk=CHUNK, opening=OPEN, positions=1280, window=1280, lanes=2, settings=EngineSettings(growth=1)
        )
        async with running(engine):
            await answer(engine, request(turn(41, 600)))
            other = await engine.submit(request(turn(42, 20), reply=30))
            found = await answer(engine, long)
            async for event in other:
                assert not isinstance(event, TextDelta) or event.text
                if isinstance(event, Finished):
                    assert event.usage.completion_tokens == 30
            same(found, await fresh(long))
            assert engine.status().details["preemptions_total"] == 0

    asyncio.run(main())


def test_a_prompt_that_needs_the_last_page_takes_it_from_what_was_kept_of_it() -> None:
    """Its own kept start shares a page that it goes on to write; the copy that it would need has no room."""
    each = Request(id="r", prompt=TokensPrompt(tuple(range(30, 71))), limits=Limits(max_tokens=20, ignore_eos=True))

    async def main() -> Answer:
        async with running(toy_engine(chunk=16, positions=64, window=64, lanes=1)) as engine:
            return await answer(engine, each)

    same(asyncio.run(main()), alone(each))

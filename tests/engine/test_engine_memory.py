"""Memory: who is let in, who yields when it is short, and what a resumed reply looks like."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any, cast

import pytest

from tensorfold.chat.plain import PlainFormat
from tensorfold.compute.runner import Runner
from tensorfold.contracts.step import Segment, Step
from tensorfold.engine.active import ActiveRequest, Entry
from tensorfold.engine.admission import Admission, no_gates
from tensorfold.engine.capacity import Capacity, effective_window
from tensorfold.engine.events import LocalStream
from tensorfold.engine.settings import EngineSettings
from tensorfold.errors import OutOfPages
from tensorfold.ir import (
    Event,
    Failed,
    Finished,
    Limits,
    Progress,
    Request,
    Started,
    Stopped,
    TextDelta,
    TextPrompt,
    TokensPrompt,
)
from tensorfold.testing.scripted import Stall, scripted_geometry, scripted_runner
from tensorfold.testing.ticking import ticking
from tensorfold.testing.toy_engine import events, running, toy_engine
from tensorfold.testing.toy_tokenizer import ToyPrompts, ToyTokenizer

TIGHT = EngineSettings(growth=1)
"""Replies reserve nothing ahead, so that memory does run short."""


def request(letter: str, prompt: int, reply: int, **fields: Any) -> Request:
    return Request(
        id=letter, prompt=TextPrompt(letter * prompt), limits=Limits(max_tokens=reply, ignore_eos=True), **fields
    )


def serve(*requests: Request, **engine_fields: Any) -> tuple[list[list[Event]], dict[str, Any]]:
    """All requests at once: what each stream says, and the engine's figures at the end."""

    async def main() -> tuple[list[list[Event]], dict[str, Any]]:
        arrived = Stall()
        engine = toy_engine(on_step=lambda step: arrived(), **engine_fields)
        async with running(engine):
            streams = [await engine.submit(each) for each in requests]
            arrived.release.set()
            return [[event async for event in each] for each in streams], dict(engine.status().details)

    return asyncio.run(main())


def shown(sent: Sequence[Event]) -> tuple[str, tuple[str, ...], int]:
    """Text, hash and count of a finished stream."""
    last = sent[-1]
    assert isinstance(last, Finished)
    text = "".join(event.text for event in sent if isinstance(event, TextDelta))
    return text, last.token_sha, last.usage.completion_tokens


@pytest.mark.requirement("T-162", "T-163")
def test_replies_that_outgrow_the_memory_yield_and_resume_exactly() -> None:
    """Three replies that need twice the memory: the newest are paused and replayed, and all equal their solo runs."""
    requests = [request(letter, 20, 200) for letter in "abc"]
    alone = [shown(serve(each, positions=1024)[0][0]) for each in requests]
    sent, details = serve(*requests, positions=320, window=256, settings=TIGHT)
    assert details["preemptions_total"] >= 2
    assert [shown(each) for each in sent] == alone
    assert details["positions_free"] == details["positions_total"] == 320


@pytest.mark.parametrize("share", [0.0, 0.25])
@pytest.mark.parametrize("length", range(17, 25))
def test_what_is_yielded_serves_the_others_first(length: int, share: float) -> None:
    """Drafted windows need more than replies reserve; the one that yields does not take it back before their next round."""
    requests = [request("a", length, 200), request("b", 20, 200), request("c", 20, 200)]
    alone = [shown(serve(each, positions=1024)[0][0]) for each in requests]
    tight = EngineSettings(growth=1, decode_share=share)
    sent, details = serve(*requests, positions=320, window=256, settings=tight, clock=ticking(), wrong=2)
    assert details["preemptions_total"] >= 2
    assert [shown(each) for each in sent] == alone


def test_a_resumed_prompt_does_not_begin_twice() -> None:
    """`Started` comes once, and progress never goes back."""
    requests = [request(letter, 100, 150, progress=True) for letter in "ab"]
    sent, details = serve(*requests, positions=320, window=320, settings=TIGHT)
    assert details["preemptions_total"] >= 1
    for each in sent:
        assert sum(isinstance(event, Started) for event in each) == 1
        processed = [event.processed for event in each if isinstance(event, Progress)]
        assert processed == sorted(set(processed)) and processed[-1] == 100


def test_a_prompt_that_finds_no_pages_yields_to_the_reply_beside_it() -> None:
    """A reply that grows while a newer prompt is computed takes the pages; the prompt begins again when there are some."""
    requests = [request("a", 20, 190), request("b", 150, 40)]
    alone = [shown(serve(each, positions=1024)[0][0]) for each in requests]
    seconds = count()
    many_rounds = EngineSettings(growth=1, decode_share=100.0)
    sent, details = serve(
        *requests, positions=256, window=256, settings=many_rounds, clock=lambda: float(next(seconds))
    )
    assert details["preemptions_total"] >= 1
    assert details["chunks_total"] > 2 + 10, "some of the second prompt's chunks ran twice"
    assert [shown(each) for each in sent] == alone


@pytest.mark.requirement("T-262")
def test_requests_wait_while_there_is_no_room_for_them() -> None:
    """With room reserved ahead nobody has to yield: the later request waits for the first one's end."""
    requests = [request(letter, 20, 200) for letter in "ab"]
    sent, details = serve(*requests, positions=320, window=256, settings=EngineSettings(growth=200))
    assert details["preemptions_total"] == 0
    assert [shown(each)[2] for each in sent] == [200, 200]


def test_a_waiting_prompt_that_does_not_fit_is_not_overtaken_for_ever() -> None:
    """While the first in line finds no room, nobody behind it is let in, so that the room comes to it."""
    order: list[str] = []

    def note(step: Step[Any]) -> None:
        if step.kind == "chunk" and step.segments[0].start == 0:
            order.append(chr(step.segments[0].tokens[0]))

    stall = Stall()

    def hold(step: Step[Any]) -> None:
        note(step)
        stall()

    async def main() -> None:
        engine = toy_engine(on_step=hold, positions=256, window=256, settings=EngineSettings(growth=256))
        async with running(engine):
            first = await engine.submit(request("a", 20, 100))
            while not stall.entered.is_set():
                await asyncio.sleep(0.001)
            # Of the two that wait, the older is the longer one and is passed over until it is next.
            large = await engine.submit(request("l", 150, 50))
            small = [await engine.submit(request(letter, 10, 60)) for letter in "bcdefghijk"]
            stall.release.set()
            for stream in (first, large, *small):
                assert shown([event async for event in stream])[2] >= 50

    asyncio.run(main())
    assert order[0] == "a"
    assert order.index("l") < len(order) - 1


def test_the_window_is_never_larger_than_the_memory() -> None:
    """A lone request is promised its whole reply, so the window is what the pool can hold."""
    geometry = scripted_geometry(vocabulary=300, window=1000)
    runner = scripted_runner([], geometry, lanes=2, positions=640)
    assert effective_window(runner, None) == 640
    assert effective_window(runner, 300) == 300
    assert effective_window(scripted_runner([], geometry, lanes=2), None) == 1000


def test_a_lone_reply_that_finds_no_pages_ends_with_what_would_help() -> None:
    """When nobody else can yield, the error says where it stood and which settings matter; the next one is served."""
    refused = False

    def refuse(step: Step[Any]) -> None:
        nonlocal refused
        if step.kind == "rows" and not refused:
            refused = True
            raise OutOfPages("1 more pages of 64 positions are needed and 0 are free")

    async def main() -> tuple[list[Event], list[Event]]:
        engine = toy_engine(on_step=refuse)
        async with running(engine):
            return await events(engine, request("a", 10, 5)), await events(engine, request("b", 10, 5))

    sent, after = asyncio.run(main())
    last = sent[-1]
    assert isinstance(last, Failed)
    assert "state memory is full at position 11" in last.message and "--context" in last.message
    assert shown(after)[2] == 5


def test_a_reply_fills_the_memory_to_its_last_position() -> None:
    """A lone request whose prompt and reply are exactly what the pool holds is served whole."""
    (sent,), details = serve(request("a", 28, 100), positions=128, window=128, lanes=1)
    assert shown(sent)[2] == 100
    assert Stopped(0, "length") in sent
    assert details["preemptions_total"] == 0


def test_requests_that_fill_the_memory_again_and_again_are_all_answered() -> None:
    """Twenty times what the pool holds, each request most of it, with kept prompts in between: nobody fails."""
    requests = [request(chr(97 + number), 100 + 3 * number, 60) for number in range(20)]
    sent, details = serve(*requests, positions=256, window=256, lanes=6, settings=EngineSettings(growth=16))
    assert [shown(each)[2] for each in sent] == [60] * 20
    assert details["requests_failed"] == 0
    assert details["positions_free"] == details["positions_total"] == 256


def test_a_prompt_that_waits_for_room_costs_nobody_a_kept_prompt() -> None:
    """What cannot be made room for by giving up is left alone: the choices of a request wait, and its prompt is kept."""
    requests = [request("a", 150, 100, choices=3), request("b", 100, 60)]
    alone = [shown(serve(each, positions=2048, lanes=4)[0][0]) for each in requests]
    sent, _ = serve(*requests, positions=320, window=320, lanes=4, settings=EngineSettings(growth=64))
    assert [shown(each)[1:] for each in sent] == [each[1:] for each in alone]


@pytest.mark.parametrize(("positions", "kept"), [(640, 0), (1024, 0), (1024, 192), (2048, 0), (2048, 1024)])
def test_ample_memory_is_told_from_short_memory_by_its_size_alone(
    monkeypatch: pytest.MonkeyPatch, positions: int, kept: int
) -> None:
    """Looking at nobody gives what looking at everybody gives, whatever the others hold and prompts are kept."""
    looked: list[bool] = []
    geometry = scripted_geometry(vocabulary=99, window=512)
    runner = scripted_runner([], geometry, lanes=4, chunk=512, positions=positions)
    capacity = Capacity(runner, 64)
    if kept:
        slot = held(runner, kept)
        runner.snapshot(slot)
        runner.release(slot)
    holders: list[Entry] = []
    for prompt in (70, 200, 130):
        wanted = entry(prompt, 300)
        short = Capacity.missing(capacity, wanted, holders)
        with monkeypatch.context() as patched:
            patched.setattr(Capacity, "_ample", lambda *_: False)
            assert capacity.missing(wanted, holders) == short
        looked.append(capacity._ample(runner.pages_for(wanted.sequence.position), len(holders)))
        if not short:
            wanted.slot, wanted.computed = held(runner, prompt), prompt
            holders.append(wanted)
    assert all(looked) is (positions - kept >= 1536)


def held(runner: Runner[Any], length: int) -> int:
    """A slot of so many positions."""
    slot = runner.acquire()
    assert slot is not None
    runner.forward([Segment(slot, (1,) * length, 0, kind="chunk")])
    runner.commit(slot, length)
    return slot


def entry(prompt: int, reply: int) -> Entry:
    """A request that waits."""
    tokenizer = ToyTokenizer()
    admission = Admission(
        prompts=ToyPrompts(tokenizer),
        tokenizer=tokenizer,
        chat=PlainFormat(),
        geometry=scripted_geometry(vocabulary=99, window=512),
        window=512,
        chunk=512,
        settings=EngineSettings(),
        drafting=None,
        gates=no_gates,
    )
    wanted = Request(id="r", prompt=TokensPrompt((1,) * prompt), limits=Limits(max_tokens=reply, ignore_eos=True))
    (found,) = ActiveRequest(1, admission.job(wanted), cast("LocalStream", None), 0.0).entries
    return found

"""Many requests at once, some bad, some cancelled, memory short: every reply that survives equals its solo run."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from pathlib import Path

import pytest

from tensorfold.engine.active import ActiveRequest, Entry
from tensorfold.engine.drafts import Drafter
from tensorfold.engine.events import LocalStream
from tensorfold.engine.job import Job
from tensorfold.engine.policies import DefaultPolicy
from tensorfold.engine.sequence import Sequence
from tensorfold.engine.settings import EngineSettings
from tensorfold.errors import RequestError
from tensorfold.ir import Answer, Failed, Limits, Request, Sampling, Stopped, TextPrompt, TokensPrompt, fold
from tensorfold.testing.toy_engine import answer, running, toy_engine

SETTINGS = EngineSettings(growth=1)
LEFT_BEHIND = (ActiveRequest, Entry, Sequence, LocalStream, Job)
"""None of these outlives its request."""


class Copies:
    """Drafts what followed the last token when it last occurred."""

    def begin(self, prompt: SequenceOf[int]) -> Drafter:
        return _Copies(list(prompt))


class _Copies:
    def __init__(self, tokens: list[int]) -> None:
        self._tokens = tokens

    def extend(self, token: int) -> None:
        self._tokens.append(token)

    def propose(self, most: int) -> SequenceOf[int]:
        last = self._tokens[-1]
        for place in range(len(self._tokens) - 2, -1, -1):
            if self._tokens[place] == last:
                return self._tokens[place + 1 : place + 1 + min(most, 4)]
        return ()


def some_request(chance: random.Random, number: int) -> Request:
    """Any size, any sampling; a few are impossible."""
    prompt = TextPrompt("".join(chance.choice("ab ") for _ in range(chance.randint(1, 90))))
    limits = Limits(
        max_tokens=chance.randint(1, 70),
        ignore_eos=chance.random() < 0.7,
        min_tokens=0,
        stop=("q",) if chance.random() < 0.3 else (),
    )
    return Request(
        id=str(number),
        prompt=TokensPrompt((9999,)) if chance.random() < 0.1 else prompt,
        sampling=Sampling(
            temperature=chance.choice((0.0, 0.7, 1.4)),
            seed=chance.choice((None, 1, 2)),
            top_p=chance.choice((None, 0.8)),
            repetition_penalty=chance.choice((None, 1.2)),
        ),
        limits=limits,
        choices=chance.choice((1, 1, 1, 3)),
        logprobs=chance.choice((None, 2)),
        priority=chance.choice(("foreground", "foreground", "background")),
        draft=chance.random() < 0.8,
        echo=chance.random() < 0.2,
    )


def open_handles() -> int:
    """Files, sockets and pipes of this process; 0 where the system does not tell."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def objects_of_requests() -> list[object]:
    """Those alive in this process."""
    return [each for each in gc.get_objects() if type(each) in LEFT_BEHIND]


async def through(engine_answer: asyncio.Future[Answer]) -> Answer | None:
    try:
        return await engine_answer
    except RequestError:
        return None


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 50), (1, 50), (2, 50), (3, 50), pytest.param(4, 500, marks=pytest.mark.slow)]
)
def test_a_crowd_of_mixed_requests_leaks_nothing_and_changes_no_reply(seed: int, count: int) -> None:
    """Many requests in 640 positions: cancelled and refused ones leave no trace, the others are as if alone.

    Memory, lanes, threads and file handles are as before, and no object of a request is left.
    """
    chance = random.Random(seed)
    requests = [some_request(chance, number) for number in range(count)]
    handles, others = open_handles(), objects_of_requests()

    async def crowd() -> list[Answer | None]:
        engine = toy_engine(
            positions=640,
            window=320,
            lanes=5,
            settings=replace(SETTINGS, front_queue=count),
            policy=DefaultPolicy(queue=count),
            drafting=Copies(),
            wrong=3,
        )

        async def one(request: Request, wait: float, leave_after: int | None) -> Answer | None:
            await asyncio.sleep(wait)
            try:
                stream = await engine.submit(request)
            except RequestError:
                return None
            events = []
            async for event in stream:
                events.append(event)
                if len(events) == leave_after:
                    stream.cancel()
            assert not isinstance(events[-1], Failed)
            if any(isinstance(event, Stopped) and event.reason == "abort" for event in events):
                return None
            return fold(events)

        async with running(engine):
            answers = await asyncio.gather(
                *(
                    one(request, chance.random() * 0.002 * count, chance.choice((None, None, None, None, 1, 3)))
                    for request in requests
                )
            )
            details, status = engine.status().details, engine.status()
            assert (status.running, status.waiting, status.healthy) == (0, 0, True)
            assert details["positions_free"] == details["positions_total"]
            assert details["requests_failed"] == 0
            assert details["preemptions_total"] or count < 500
        return answers

    async def alone() -> list[Answer | None]:
        engine = toy_engine(window=320, lanes=1)
        async with running(engine):
            return [await through(asyncio.ensure_future(answer(engine, request))) for request in requests]

    together, references = asyncio.run(crowd()), asyncio.run(alone())
    compared = 0
    for found, reference in zip(together, references, strict=True):
        if found is not None:
            assert reference is not None
            assert (found.choices, found.token_sha) == (reference.choices, reference.token_sha)
            compared += 1
    assert compared >= count // 3
    gc.collect()
    assert not [each for each in objects_of_requests() if not any(each is one for one in others)]
    assert open_handles() == handles
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tensorfold")]

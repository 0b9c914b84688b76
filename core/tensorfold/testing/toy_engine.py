"""The real engine over the scripted backend, small enough for a unit test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tensorfold.chat.plain import PlainFormat
from tensorfold.contracts.chat import ChatFormat
from tensorfold.contracts.engine import Engine
from tensorfold.contracts.policy import SchedulerPolicy
from tensorfold.contracts.step import Step
from tensorfold.engine.admission import GateMaker, no_gates
from tensorfold.engine.depth import Deepest
from tensorfold.engine.drafts import Drafting
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Answer, Event, Request, fold
from tensorfold.testing.scripted import Script, scripted_geometry, scripted_runner
from tensorfold.testing.toy_tokenizer import ToyPrompts, ToyTokenizer

__all__ = ["answer", "answer_all", "events", "running", "toy_engine"]


def toy_engine(
    scripts: Sequence[Script] = (),
    *,
    tokenizer: ToyTokenizer | None = None,
    window: int = 4096,
    lanes: int = 4,
    chunk: int = 16,
    positions: int | None = None,
    on_step: Callable[[Step[Any]], None] | None = None,
    settings: EngineSettings | None = None,
    chat: ChatFormat | None = None,
    policy: SchedulerPolicy | None = None,
    drafting: Drafting | None = None,
    gates: GateMaker = no_gates,
    clock: Callable[[], float] = time.monotonic,
    equal: bool = True,
    opening: int | None = None,
    wrong: int | None = None,
) -> LocalEngine:
    """An engine that is not yet started. `<end>` is the end token; `positions` are shared by all lanes.

    `equal`: chunks and rows are declared to give the same bits. `opening`: the token that opens a message.
    `wrong`: the model has a draft head, whose every n-th guess is wrong (0: none).
    """
    tokenizer = ToyTokenizer() if tokenizer is None else tokenizer
    end = tokenizer.token_id("<end>")
    geometry = scripted_geometry(
        vocabulary=tokenizer.size, window=window, stop_ids=frozenset() if end is None else frozenset({end})
    )
    return LocalEngine(
        scripted_runner(
            scripts, geometry, lanes=lanes, chunk=chunk, positions=positions, on_step=on_step, equal=equal, wrong=wrong
        ),
        prompts=ToyPrompts(tokenizer, opening),
        tokenizer=tokenizer,
        chat=PlainFormat() if chat is None else chat,
        settings=settings,
        policy=policy,
        drafting=drafting,
        depth=Deepest(),
        gates=gates,
        clock=clock,
    )


@asynccontextmanager
async def running(engine: LocalEngine) -> AsyncGenerator[LocalEngine, None]:
    """The engine, started; closed at the end, and nothing of it is left behind."""
    engine.start()
    try:
        yield engine
    finally:
        await engine.close(0)


async def events(engine: Engine, request: Request) -> list[Event]:
    """All events of a request, `Queued` first."""
    return [event async for event in await engine.submit(request)]


async def answer(engine: Engine, request: Request) -> Answer:
    """The whole answer.

    Raises:
        RequestError: the request was refused or has failed.
    """
    return fold(await events(engine, request))


async def answer_all(engine: Engine, requests: Sequence[Request], *, together: bool) -> list[Answer]:
    """Whole answers, asked for all at once or one after the other."""
    if together:
        return list(await asyncio.gather(*(answer(engine, each) for each in requests)))
    return [await answer(engine, each) for each in requests]

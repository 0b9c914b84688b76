"""A reply is the fresh one, whatever was kept of its prompt, in memory or on disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tensorfold.chat.plain import PlainFormat
from tensorfold.engine.copies import CopyDrafting
from tensorfold.engine.depth import Deepest
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Answer, Sampling, fold
from tensorfold.testing.toy_engine import events, running
from tensorfold.testing.toy_tokenizer import ToyPrompts

from .engine_models import WINDOW, MakeRunner
from .engine_replies import OTHERS, PROMPT, SAMPLINGS, TOKENIZER, request, same, serial


@pytest.mark.requirement("T-292", "T-095")
def test_the_same_request_again_gives_the_same_reply(runner: MakeRunner) -> None:
    """EX-03: on one engine, after other requests, and on a fresh one."""
    each = request(Sampling(temperature=1.0))

    async def main() -> list[Answer]:
        engine = LocalEngine(
            runner(2, 4 * WINDOW), prompts=ToyPrompts(TOKENIZER), tokenizer=TOKENIZER, chat=PlainFormat()
        )
        async with running(engine):
            answers = [fold(await events(engine, each))]
            for other in OTHERS[:2]:
                await events(engine, other)
                answers.append(fold(await events(engine, each)))
        return answers

    reference = serial(runner, each)
    for answer in asyncio.run(main()):
        same(answer, reference)


@pytest.mark.requirement("T-290")
def test_replies_from_a_kept_a_spilled_and_a_reloaded_prefix_equal_fresh_ones(
    runner: MakeRunner, tmp_path: Path
) -> None:
    """The same prompts on one engine again and again, with memory for few of them, and on one that was restarted."""
    requests = [
        request(sampling, prompt=(*PROMPT, number), tokens=30, logprobs=2)
        for number, sampling in enumerate(SAMPLINGS.values(), start=10)
    ]
    references = [serial(runner, each) for each in requests]
    settings = EngineSettings(spill_folder=tmp_path, spill_bytes=1 << 26)

    async def main() -> list[Answer]:
        engine = LocalEngine(
            runner(1, WINDOW),
            prompts=ToyPrompts(TOKENIZER),
            tokenizer=TOKENIZER,
            chat=PlainFormat(),
            drafting=CopyDrafting(),
            depth=Deepest(),
            settings=settings,
        )
        async with running(engine):
            return [fold(await events(engine, each)) for each in (*requests, *requests)]

    for restart in range(2):
        answers = asyncio.run(main())
        for place, answer in enumerate(answers):
            same(answer, references[place % len(requests)])
        assert all(answer.usage.cached_tokens for answer in answers[len(requests) if restart == 0 else 0 :])

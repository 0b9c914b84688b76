"""Replies of a runner through the real engine, in the ways that must not matter. For the contract of families."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tensorfold.chat.plain import PlainFormat
from tensorfold.compute.runner import Runner
from tensorfold.engine.copies import CopyDrafting
from tensorfold.engine.depth import Deepest
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Answer, Limits, Request, Sampling, TokensPrompt
from tensorfold.testing.toy_engine import answer_all, running
from tensorfold.testing.toy_tokenizer import ToyPrompts, ToyTokenizer

__all__ = ["Replies", "some_requests"]

REPLY = 12


def some_requests(tokens: Sequence[int]) -> list[Request]:
    """A greedy and a sampled one, and one whose prompt repeats itself, with log-probabilities."""
    half = tuple(tokens[: len(tokens) // 2])
    samplings = (Sampling(temperature=0.0), Sampling(temperature=1.1, top_p=0.95, seed=5), Sampling(temperature=0.0))
    prompts = (tuple(tokens), tuple(tokens[3:]), (*half, *half))
    return [
        Request(
            id=str(number),
            prompt=TokensPrompt(prompt),
            sampling=sampling,
            limits=Limits(max_tokens=REPLY, ignore_eos=True),
            logprobs=2,
        )
        for number, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True))
    ]


@dataclass(frozen=True)
class Replies:
    """Ways to serve the same requests; each gives what the choices are, to the last bit of every log-probability."""

    runner: Callable[[], Runner[Any]]
    """Makes a fresh one, with lanes for all requests."""
    vocabulary: int

    def serial(self, requests: Sequence[Request]) -> list[Any]:
        """One after the other, one token a step, nothing kept."""
        plain = [msgspec.structs.replace(each, draft=False) for each in requests]
        return self._choices(self._run(plain, EngineSettings(prefix_bytes=0), together=False))

    def drafted_together(self, requests: Sequence[Request]) -> list[Any]:
        """All at once, with copies and the model's own draft head."""
        return self._choices(self._run(requests, EngineSettings(), together=True))

    def resumed(self, requests: Sequence[Request]) -> list[Any]:
        """Each a second time on one engine, from what was kept the first time."""
        answers = self._run([*requests, *requests], EngineSettings(), together=False)[len(requests) :]
        assert all(answer.usage.cached_tokens for answer in answers), "nothing was kept"
        return self._choices(answers)

    @staticmethod
    def _choices(answers: Sequence[Answer]) -> list[Any]:
        return [(answer.token_sha, answer.choices) for answer in answers]

    def _run(self, requests: Sequence[Request], settings: EngineSettings, *, together: bool) -> list[Answer]:
        return asyncio.run(self._served(requests, settings, together=together))

    async def _served(self, requests: Sequence[Request], settings: EngineSettings, *, together: bool) -> list[Answer]:
        tokenizer = ToyTokenizer([f"<{number}>" for number in range(max(0, self.vocabulary - 256))])
        engine = LocalEngine(
            self.runner(),
            prompts=ToyPrompts(tokenizer),
            tokenizer=tokenizer,
            chat=PlainFormat(),
            settings=settings,
            drafting=CopyDrafting(),
            depth=Deepest(),
        )
        async with running(engine):
            return await answer_all(engine, requests, together=together)

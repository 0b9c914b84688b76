"""Requests of all kinds, what the engine answers to them, and the serial answers that it is compared with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from tensorfold.chat.plain import PlainFormat
from tensorfold.contracts.engine import PreparedPrompt
from tensorfold.contracts.gates import Gate
from tensorfold.contracts.policy import SchedulerPolicy, Waiting
from tensorfold.engine.depth import Deepest
from tensorfold.engine.drafts import Drafting
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.policies import DefaultPolicy
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Answer, Limits, Request, Sampling, TokensPrompt, fold
from tensorfold.testing.ticking import ticking
from tensorfold.testing.toy_engine import running
from tensorfold.testing.toy_tokenizer import ToyPrompts, ToyTokenizer

from .engine_models import WINDOW, MakeRunner

TOKENIZER = ToyTokenizer()
PROMPT = tuple((7 * place + place * place) % 90 + 2 for place in range(27))
"""Three whole chunks and three tokens."""

SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "sampled": Sampling(temperature=0.9, seed=11),
    "filtered": Sampling(temperature=1.3, top_k=40, top_p=0.9, min_p=0.02, seed=5),
    "penalized": Sampling(temperature=0.8, seed=2, repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.2),
    "biased": Sampling(temperature=1.0, seed=3, logit_bias=((40, 4.0), (41, -100.0))),
}


def request(
    sampling: Sampling = SAMPLINGS["sampled"],
    *,
    prompt: tuple[int, ...] = PROMPT,
    tokens: int = 40,
    ignore_eos: bool = True,
    stop: tuple[str, ...] = (),
    **fields: Any,
) -> Request:
    """One that replies with exactly so many tokens, unless something stops it."""
    return Request(
        id="r",
        prompt=TokensPrompt(prompt),
        sampling=sampling,
        limits=Limits(max_tokens=tokens, ignore_eos=ignore_eos, stop=stop),
        **fields,
    )


OTHERS = tuple(
    request(sampling, prompt=tuple((number * 13 + place) % 90 + 3 for place in range(5 + 6 * number)), tokens=25)
    for number, sampling in enumerate(SAMPLINGS.values())
)
"""Company of all kinds and lengths."""


def no_gates(request: Request, prompt: PreparedPrompt) -> Iterable[Gate]:
    """A free reply's."""
    return ()


class Gathering(DefaultPolicy):
    """Begins nothing before all requests of a test have arrived."""

    def __init__(self, arrived: threading.Event) -> None:
        super().__init__()
        self._arrived = arrived

    def order(self, waiting: Sequence[Waiting]) -> Sequence[Waiting]:
        assert self._arrived.wait(60)
        return super().order(waiting)


def together(
    engine_of: Callable[[SchedulerPolicy], LocalEngine], *requests: Request
) -> tuple[list[Answer], dict[str, Any]]:
    """The answers of requests of which none begins before all have arrived, and the engine's figures."""

    async def main() -> tuple[list[Answer], dict[str, Any]]:
        arrived = threading.Event()
        engine = engine_of(Gathering(arrived))
        async with running(engine):
            streams = [await engine.submit(each) for each in requests]
            arrived.set()
            sent = [[event async for event in stream] for stream in streams]
            return [fold(each) for each in sent], dict(engine.status().details)

    return asyncio.run(main())


def serve(
    make: MakeRunner,
    *requests: Request,
    lanes: int = 8,
    positions: int = 8 * WINDOW,
    drafting: Drafting | None = None,
    gates: Callable[[Request, PreparedPrompt], Iterable[Gate]] = no_gates,
    growth: int = 2048,
) -> tuple[list[Answer], dict[str, Any]]:
    """The answers of requests that run at the same time, and the engine's figures."""

    def engine_of(policy: SchedulerPolicy) -> LocalEngine:
        return LocalEngine(
            make(lanes, positions),
            prompts=ToyPrompts(TOKENIZER),
            tokenizer=TOKENIZER,
            chat=PlainFormat(),
            drafting=drafting,
            depth=Deepest(),
            gates=gates,
            policy=policy,
            settings=EngineSettings(growth=growth, decode_share=2.0),
            clock=ticking(),
        )

    return together(engine_of, *requests)


def serial(make: MakeRunner, each: Request, **fields: Any) -> Answer:
    """The reference: alone, one token a round."""
    (answer,), _ = serve(make, msgspec.structs.replace(each, draft=False), **fields)
    return answer


def same(answer: Answer, reference: Answer) -> None:
    """Text, tokens with their log-probabilities, hashes, counts and reasons; bit for bit."""
    assert answer.token_sha == reference.token_sha
    assert answer.choices == reference.choices
    assert answer.usage.completion_tokens == reference.usage.completion_tokens


def tokens_of(answer: Answer) -> tuple[int, ...]:
    """The reply's ids, from its log-probabilities."""
    return tuple(token.id for token in answer.choices[0].tokens)

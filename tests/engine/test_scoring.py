"""Scores of labels: probabilities of continuations, without a reply."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import pytest

from tensorfold.chat.plain import PlainFormat
from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import Runner
from tensorfold.contracts.backend import BackendSettings
from tensorfold.contracts.engine import CanScore
from tensorfold.contracts.step import Segment, Step
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.settings import EngineSettings
from tensorfold.errors import ContextLengthExceeded, InvalidRequest, Rejected
from tensorfold.ir import Answer, Label, Limits, Request, Score, Scored, TextPrompt, TokensPrompt
from tensorfold.testing.fake_family import FakeFamily, fake_config, fake_decoder
from tensorfold.testing.reference import ReferenceBackend
from tensorfold.testing.scripted import Script, Stall
from tensorfold.testing.toy_engine import answer, running, toy_engine
from tensorfold.testing.toy_tokenizer import ToyPrompts, ToyTokenizer

PROMPT = tuple((7 * place) % 90 + 2 for place in range(41))
WORDS: tuple[tuple[int, ...], ...] = ((5,), (6,), (7, 8), (7, 8, 9, 10), (7, 11), (5, 5, 5))


def score(*labels: Label, prompt: tuple[int, ...] = PROMPT, **fields: Any) -> Score:
    return Score(id="s", prompt=TokensPrompt(prompt), labels=labels, **fields)


EACH = score(*(Label((word,)) for word in WORDS))


def runner(lanes: int = 4) -> Runner[Any]:
    config = fake_config(vocabulary=96, window=256)
    geometry = FakeFamily().geometry(config)
    session = ReferenceBackend(chunk=16).open(BackendSettings())
    plan = plan_memory(geometry, session, lanes=lanes, budget=1 << 28)
    decoder = fake_decoder(session.packer, config)
    return Runner(decoder, session, geometry, lanes=lanes, pages=plan.pages, identity="fake")


def direct(continuation: tuple[int, ...]) -> list[float]:
    """What a plain run of prompt and continuation says."""
    own = runner(1)
    slot = own.acquire()
    assert slot is not None
    for start in (0, 16):
        own.forward([Segment(slot, PROMPT[start : start + 16], start, kind="chunk")])
        own.commit(slot, start + 16)
    output = own.forward([Segment(slot, PROMPT[32:], 32, kind="chunk")])
    own.commit(slot, len(PROMPT))
    found: list[float] = []
    for place, token in enumerate(continuation):
        row = own.logits(output, [0])[0].astype(np.float64)
        found.append(float(row[token] - (row.max() + np.log(np.exp(row - row.max()).sum()))))
        output = own.forward([Segment(slot, (token,), len(PROMPT) + place)])
        own.commit(slot, len(PROMPT) + place + 1)
    return found


def fake_engine(lanes: int) -> LocalEngine:
    tokenizer = ToyTokenizer()
    return LocalEngine(runner(lanes), prompts=ToyPrompts(tokenizer), tokenizer=tokenizer, chat=PlainFormat())


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_scores_are_those_of_a_plain_run(lanes: int) -> None:
    """Bit for bit, single tokens and longer continuations, on a model with every kind of state, however few lanes."""

    async def main() -> tuple[Scored, Scored]:
        async with running(fake_engine(lanes)) as engine:
            return await engine.score(EACH), await engine.score(EACH)

    first, second = asyncio.run(main())
    for label, word in zip(first.labels, WORDS, strict=True):
        (spelling,) = label.spellings
        assert spelling.ids == word
        assert list(spelling.logprobs) == direct(word)
        assert label.logprob == pytest.approx(math.fsum(spelling.logprobs))
    assert first.labels == second.labels
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (41, 0)
    assert second.usage.cached_tokens == 32


def test_replies_beside_scores_are_not_changed() -> None:
    """Nor are scores by replies beside them."""
    request = Request(id="r", prompt=TokensPrompt(PROMPT), limits=Limits(max_tokens=30, ignore_eos=True))

    async def main() -> tuple[Answer, Scored, Answer]:
        async with running(fake_engine(4)) as engine:
            alone = await answer(engine, request)
            beside, scored = await asyncio.gather(answer(engine, request), engine.score(EACH))
            return alone, scored, beside

    alone, scored, beside = asyncio.run(main())
    assert alone.token_sha == beside.token_sha
    assert [list(label.spellings[0].logprobs) for label in scored.labels] == [direct(word) for word in WORDS]


def toy(*scores: Score, **engine_fields: Any) -> list[Scored]:
    async def main() -> list[Scored]:
        engine = toy_engine(**engine_fields)
        assert isinstance(engine, CanScore)
        async with running(engine):
            return [await engine.score(each) for each in scores]

    return asyncio.run(main())


def test_a_label_is_as_likely_as_its_spellings_together() -> None:
    """Equal spellings count once; texts are tokenized as they stand."""
    script = Script(tuple(b"is it? "), tuple(b"yes"))
    labels = (Label(("yes", "no")), Label(("yes", tuple(b"yes"))), Label(("no",)))
    (found,) = toy(Score(id="s", prompt=TextPrompt("is it? "), labels=labels), scripts=[script])
    both, one, no = (math.exp(label.logprob) for label in found.labels)
    assert both == pytest.approx(1) and one == pytest.approx(1) and no == pytest.approx(0)
    assert found.labels[0].spellings[0].ids == tuple(b"yes")


def test_the_prompt_is_computed_once_for_all_labels() -> None:
    """Its chunks are planned over it alone; everything else is rows that leave no trace."""
    steps: list[tuple[str, int]] = []

    def note(step: Step[Any]) -> None:
        steps.append((step.kind, step.rows))

    async def main() -> Any:
        engine = toy_engine(on_step=note, lanes=3, settings=EngineSettings(prefix_bytes=0))
        async with running(engine):
            await engine.score(EACH)
            return engine.status().details

    details = asyncio.run(main())
    chunks = [rows for kind, rows in steps if kind == "chunk"]
    assert chunks == [16, 16, 9]
    assert sum(rows for kind, rows in steps if kind == "rows") == sum(len(word) - 1 for word in WORDS)
    assert details["positions_free"] == details["positions_total"]


def test_scores_share_the_memory_that_there_is() -> None:
    """In a pool of one page, which forks would have to copy, labels are scored one after the other."""
    (tight,), (roomy,) = toy(EACH, positions=64, window=64, lanes=4), toy(EACH)
    assert tight.labels == roomy.labels


def test_what_cannot_be_scored_is_refused() -> None:
    """No label, an empty one, an id that does not exist, and a continuation that does not fit."""
    for labels in ((), (Label(((5,),)),) * 1025):
        with pytest.raises(InvalidRequest, match="from 1 to 1024"):
            score(*labels)
    with pytest.raises(InvalidRequest, match="none may be empty"):
        Label(("",))
    with pytest.raises(InvalidRequest, match="a label holds token id 9999"):
        toy(score(Label(((9999,),))))
    with pytest.raises(ContextLengthExceeded):
        toy(score(Label(((5,) * 100,))), window=128)


def test_a_request_for_scores_can_be_given_up() -> None:
    """Its prompt is dropped at the next round."""
    stall = Stall()

    async def main() -> None:
        engine = toy_engine(on_step=lambda step: stall())
        async with running(engine):
            asked = asyncio.ensure_future(engine.score(EACH))
            while not stall.entered.is_set():
                await asyncio.sleep(0.001)
            asked.cancel()
            stall.release.set()
            with pytest.raises(asyncio.CancelledError):
                await asked
            while engine.status().running:
                await asyncio.sleep(0.001)
            assert engine.status().healthy

    asyncio.run(main())


def test_a_closed_engine_scores_nothing() -> None:
    async def main() -> None:
        engine = toy_engine()
        async with running(engine):
            pass
        with pytest.raises(Rejected):
            await engine.score(EACH)

    asyncio.run(main())


def test_the_likeliest_token_of_the_vocabulary_is_told() -> None:
    """Whether or not it is a label's."""
    every = score(*(Label(((token,),)) for token in range(96)))

    async def main() -> tuple[Scored, Scored]:
        async with running(fake_engine(2)) as engine:
            return await engine.score(every), await engine.score(EACH)

    whole, few = asyncio.run(main())
    logprobs = [label.logprob for label in whole.labels]
    assert whole.top == few.top == logprobs.index(max(logprobs))

"""Several replies to one prompt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tensorfold.contracts.step import Step
from tensorfold.engine.keys import choice_key, sampling_key
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Answer, Limits, Request, Sampling, TextPrompt, fold
from tensorfold.testing.scripted import Script, raises
from tensorfold.testing.toy_engine import answer, events, running, toy_engine

PROMPT = "a prompt that takes several chunks of the plan"
IDS = tuple(PROMPT.encode())


def request(choices: int, *, seed: int | None = 3, tokens: int = 40, **fields: Any) -> Request:
    return Request(
        id="r",
        prompt=TextPrompt(PROMPT),
        choices=choices,
        sampling=Sampling(temperature=1.0, seed=seed),
        limits=Limits(max_tokens=tokens, ignore_eos=True),
        **fields,
    )


def ask(*requests: Request, **engine_fields: Any) -> tuple[list[Answer], dict[str, Any]]:
    async def main() -> tuple[list[Answer], dict[str, Any]]:
        engine = toy_engine(**engine_fields)
        async with running(engine):
            answers = [await answer(engine, each) for each in requests]
            return answers, dict(engine.status().details)

    return asyncio.run(main())


SOLO = [ask(request(1, seed=choice_key(3, choice)))[0][0].choices[0] for choice in range(5)]
"""Each choice of seed 3 as a request of its own: its key is the choice's."""


@pytest.mark.requirement("T-111")
@pytest.mark.parametrize("lanes", [1, 2, 3, 8])
def test_every_choice_is_the_reply_of_its_own_key(lanes: int) -> None:
    """Whatever the number of lanes; choice 0 is what a request for one choice gets."""
    (whole,), details = ask(request(5), lanes=lanes)
    assert whole.choices == tuple(SOLO)
    assert len(set(whole.token_sha)) == 5
    assert whole.usage.prompt_tokens == len(IDS)
    assert whole.usage.completion_tokens == 5 * 40
    assert details["positions_free"] == details["positions_total"]


def test_the_prompt_is_computed_once_for_all_choices() -> None:
    """Also for those that wait for a lane."""
    chunks = 0

    def count(step: Step[Any]) -> None:
        nonlocal chunks
        chunks += step.kind == "chunk"

    ask(request(5), lanes=2, on_step=count)
    assert chunks == 3


def test_choices_without_memory_for_a_kept_prompt_are_computed_again() -> None:
    """Kept prompts are the first to go when another request needs the room; the replies are the same."""
    small = EngineSettings(growth=1)

    async def main() -> Answer:
        engine = toy_engine(lanes=2, positions=256, window=256, settings=small)
        async with running(engine):
            many = asyncio.ensure_future(events(engine, request(5)))
            others = [
                asyncio.ensure_future(
                    answer(
                        engine,
                        Request(
                            id=letter, prompt=TextPrompt(letter * 100), limits=Limits(max_tokens=100, ignore_eos=True)
                        ),
                    )
                )
                for letter in "xyz"
            ]
            await asyncio.gather(*others)
            return fold(await many)

    assert asyncio.run(main()).choices == tuple(SOLO)


def test_a_kept_prompt_never_blocks_the_choice_that_it_is_kept_for() -> None:
    """A reply that needs the whole memory gets it: the kept prompt is given up and computed again."""
    (roomy,), _ = ask(request(2, tokens=128 - len(IDS)), lanes=1)
    (tight,), details = ask(request(2, tokens=128 - len(IDS)), lanes=1, positions=128, window=128)
    assert tight.choices == roomy.choices
    assert details["chunks_total"] == 2 * 3


def test_choices_without_a_seed_differ_too() -> None:
    """The prompt's key is choice 0's, and the others are derived from it."""
    (whole, again), _ = ask(request(3, seed=None), request(3, seed=None))
    assert len(set(whole.token_sha)) == 3
    assert whole.token_sha == again.token_sha
    (plain,), _ = ask(request(1, seed=sampling_key(None, IDS, 0)))
    assert plain.token_sha[0] == whole.token_sha[0]


@pytest.mark.requirement("T-293")
def test_the_salt_gives_independent_repeats_of_requests_without_a_seed() -> None:
    """Another salt, other replies; requests with a seed do not change."""
    replies = [ask(request(1, seed=None), request(1), settings=EngineSettings(seed_salt=salt))[0] for salt in (0, 1, 2)]
    assert len({unseeded.token_sha for unseeded, _ in replies}) == 3
    assert len({seeded.token_sha for _, seeded in replies}) == 1


def test_choices_end_one_by_one_and_the_stream_when_all_have() -> None:
    """Each choice has one `Stopped`, and `Finished` has a hash for each."""
    (whole,), _ = ask(request(4, tokens=1), lanes=2)
    assert [choice.reason for choice in whole.choices] == ["length"] * 4
    assert len(whole.token_sha) == 4


def test_a_choice_that_fails_ends_the_request_and_frees_every_lane() -> None:
    """One stream has one end."""

    async def main() -> None:
        engine = toy_engine([Script(IDS, tuple(b"abcdef"), at={3: raises(RuntimeError("x"))})], lanes=3)
        async with running(engine):
            sent = await events(engine, request(3, draft=False))
            assert type(sent[-1]).__name__ == "Failed"
            details = engine.status().details
            assert details["positions_free"] == details["positions_total"]
            whole = await answer(engine, Request(id="n", prompt=TextPrompt("x"), limits=Limits(max_tokens=2)))
            assert whole.usage.completion_tokens == 2

    asyncio.run(main())

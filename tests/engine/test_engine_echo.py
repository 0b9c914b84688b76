"""Replies that begin with their prompt, with or without its log-probabilities."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tensorfold.contracts.step import Step
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Answer, Limits, Request, Sampling, TextPrompt, TokensPrompt
from tensorfold.testing.scripted import Script
from tensorfold.testing.toy_engine import answer, running, toy_engine
from tensorfold.testing.toy_tokenizer import ToyTokenizer

TOKENIZER = ToyTokenizer()
END = TOKENIZER.ids("<end>")[0]
TEXT = "Grüße, 😊 and a good deal more than one chunk"


def request(prompt: Any = None, **fields: Any) -> Request:
    return Request(
        id="r",
        prompt=TextPrompt(TEXT) if prompt is None else prompt,
        limits=fields.pop("limits", Limits(max_tokens=5, ignore_eos=True)),
        sampling=Sampling(temperature=0.7, seed=4),
        echo=fields.pop("echo", True),
        **fields,
    )


def serve(*requests: Request, **engine_fields: Any) -> list[Answer]:
    async def main() -> list[Answer]:
        engine = toy_engine(tokenizer=TOKENIZER, **engine_fields)
        async with running(engine):
            return [await answer(engine, each) for each in requests]

    return asyncio.run(main())


def test_a_reply_begins_with_the_prompts_own_text() -> None:
    """What follows is the reply without an echo, and is counted without it."""
    echoed, plain = serve(request(), request(echo=False))
    assert echoed.choices[0].text == TEXT + plain.choices[0].text
    assert echoed.token_sha == plain.token_sha
    assert echoed.usage.completion_tokens == 5
    assert echoed.choices[0].tokens == ()


def test_every_choice_has_its_echo() -> None:
    (found,) = serve(request(choices=3))
    assert all(choice.text.startswith(TEXT) for choice in found.choices)


def test_a_prompt_of_tokens_is_echoed_as_it_is_spelled() -> None:
    """Control tokens and parts of characters included."""
    ids = (*b"a", END, *"é".encode())
    (found,) = serve(request(TokensPrompt(ids)))
    assert found.choices[0].text.startswith("a<end>é")


def test_stop_strings_are_not_looked_for_in_the_echo() -> None:
    (found,) = serve(request(limits=Limits(max_tokens=3, ignore_eos=True, stop=("good",))))
    assert found.choices[0].text.startswith(TEXT)


@pytest.mark.requirement("T-115")
@pytest.mark.parametrize("chunk", [16, 512])
def test_log_probabilities_of_the_prompt_come_with_its_echo(chunk: int) -> None:
    """One for each token, of the distribution before it; none for the first; its bytes make the text."""
    script = Script(tuple(TEXT.encode()), tuple(b"done"), at={})
    (found,) = serve(request(logprobs=2), scripts=[script], chunk=chunk)
    tokens = found.choices[0].tokens
    prompt = tokens[: len(TEXT.encode())]
    assert b"".join(token.data for token in prompt).decode() == TEXT
    assert prompt[0].logprob is None and prompt[0].alternatives == ()
    for token in prompt[1:]:
        assert token.logprob is not None and token.logprob <= 0
        assert len(token.alternatives) == 2
    # The scripted model is sure of what its scripts say, and knows nothing of a prompt.
    assert tokens[len(prompt)].logprob == pytest.approx(0, abs=1e-6)


def test_the_prompts_log_probabilities_are_the_same_fresh_and_repeated() -> None:
    """They take nothing from the cache, and leave it to others."""
    steps: list[int] = []

    def count(step: Step[Any]) -> None:
        if step.kind == "chunk":
            steps.append(step.rows)

    first, second, third = serve(request(logprobs=1), request(logprobs=1), request(echo=False), on_step=count)
    assert first.choices == second.choices
    assert (second.usage.cached_tokens, third.usage.cached_tokens) == (0, 48)
    assert sum(steps) == 2 * len(TEXT.encode()) + (len(TEXT.encode()) - 48)


def test_a_prompt_that_is_computed_again_is_echoed_once() -> None:
    """A background reply that lost its lane sends no second echo."""

    async def main() -> tuple[Answer, Answer]:
        engine = toy_engine(tokenizer=TOKENIZER, lanes=1, settings=EngineSettings(prefix_bytes=0))
        async with running(engine):
            back = asyncio.ensure_future(
                answer(
                    engine,
                    request(logprobs=0, priority="background", limits=Limits(max_tokens=400, ignore_eos=True)),
                )
            )
            await asyncio.sleep(0.02)
            front = await answer(engine, request())
            return await back, front

    back, _ = asyncio.run(main())
    assert back.choices[0].text.count("a good deal more") == 1
    prompt = back.choices[0].tokens[: len(TEXT.encode())]
    assert b"".join(token.data for token in prompt).decode() == TEXT

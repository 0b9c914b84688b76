"""A reply is the serial one, whatever was drafted, also where gates and stops cut into a draft."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from tensorfold.contracts.engine import PreparedPrompt
from tensorfold.contracts.gates import Gate
from tensorfold.engine.copies import CopyDrafting
from tensorfold.engine.gates import AllowedTokens, ForcedRun
from tensorfold.ir import Request, Sampling

from .engine_drafters import Nonsense, Recalled
from .engine_models import VOCABULARY, MakeRunner
from .engine_replies import OTHERS, PROMPT, SAMPLINGS, request, same, serial, serve, tokens_of


@pytest.mark.requirement("T-134", "T-289", "Y-053", "T-102")
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_drafted_replies_equal_serial_ones(runner: MakeRunner, sampling: Sampling) -> None:
    """EX-01: right drafts, drafts that are wrong here and there, and nonsense change nothing but the speed."""
    each = request(sampling, logprobs=3)
    reference = serial(runner, each)
    replies = {PROMPT: tokens_of(reference)}
    assert len(replies[PROMPT]) == 40
    kept: list[int] = []
    for drafting in (Recalled(replies), Recalled(replies, 3), Recalled(replies, 7), Nonsense(), CopyDrafting(), None):
        (drafted,), details = serve(runner, each, drafting=drafting)
        same(drafted, reference)
        if isinstance(drafting, Recalled | Nonsense):
            assert drafted.usage.drafted_tokens > 0
        kept.append(drafted.usage.accepted_tokens)
        if kept == [39]:
            assert details["rounds_total"] == 1, "a reply that is drafted whole takes one round"
    assert kept[0] > kept[2] > kept[1] > kept[3]


@pytest.mark.parametrize("sampling", [SAMPLINGS["greedy"], SAMPLINGS["sampled"]], ids=["greedy", "sampled"])
def test_copies_of_repetitive_prompts_equal_serial_replies(runner: MakeRunner, sampling: Sampling) -> None:
    """EX-01: a loop, a text given twice, a list of near-equal rows; fresh and repeated, alone and with others."""
    text = tuple((place * place * 5 + 3) % 90 + 2 for place in range(40))
    rows = tuple(token for row in range(8) for token in (*text[:9], 2 + row))
    prompts = ((7, 8, 9) * 30, (*text, 5, *text, 6, *text[:9]), rows)
    requests = [request(sampling, prompt=prompt, tokens=60) for prompt in prompts]
    references = [serial(runner, each) for each in requests]
    together, _ = serve(runner, *requests, *OTHERS[:2], drafting=CopyDrafting())
    repeated, _ = serve(runner, *requests, *requests, drafting=CopyDrafting(), lanes=3)
    for place, reference in enumerate(references):
        for answer in (together[place], repeated[place], repeated[3 + place]):
            same(answer, reference)


def forced(request: Request, prompt: PreparedPrompt) -> Iterable[Gate]:
    """A forced opener, and only even tokens behind it."""
    return (ForcedRun([33, 35, 37, 34]), AllowedTokens(set(range(2, VOCABULARY, 2)), VOCABULARY))


@pytest.mark.requirement("T-197", "T-245")
def test_gates_hold_alike_drafted_and_serial(runner: MakeRunner) -> None:
    """A forced run and a mask, with drafts that know nothing of them."""
    each = request(logprobs=1)
    reference = serial(runner, each, gates=forced)
    free = tokens_of(serial(runner, each))
    for drafting in (None, Recalled({PROMPT: tokens_of(reference)}), Recalled({PROMPT: free}), Nonsense()):
        (answer,), details = serve(runner, each, drafting=drafting, gates=forced)
        same(answer, reference)
        assert details["rounds_total"] <= 36, "the forced run is one window"
    tokens = tokens_of(reference)
    assert tokens[:4] == (33, 35, 37, 34)
    assert all(token % 2 == 0 for token in tokens[4:])


def _pairs(tokens: Sequence[int]) -> set[tuple[int, ...]]:
    return {tuple(tokens[place : place + 2]) for place in range(len(tokens))}


@pytest.mark.requirement("T-136")
def test_the_stopping_token_is_the_same_drafted_and_serial(runner: MakeRunner) -> None:
    """Stop strings and end tokens inside a window end the reply at the token that completes them."""
    free = serial(runner, request(logprobs=0))
    tokens = tokens_of(free)
    place = next(place for place in range(8, 39) if tokens[place : place + 2] not in _pairs(tokens[:place]))
    stop = bytes(tokens[place : place + 2]).decode()
    each = request(stop=(stop,), logprobs=0)
    reference = serial(runner, each)
    assert reference.choices[0].reason == "stop"
    assert reference.usage.completion_tokens <= place + 2
    for wrong in (0, 5):
        (drafted,), _ = serve(runner, each, drafting=Recalled({PROMPT: tokens}, wrong))
        same(drafted, reference)

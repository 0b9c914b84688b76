"""A reply is the solo one, whatever runs beside it and however often it has to make room."""

from __future__ import annotations

import pytest

from tensorfold.engine.keys import choice_key
from tensorfold.ir import Sampling

from .engine_drafters import Recalled
from .engine_models import MakeRunner
from .engine_replies import OTHERS, PROMPT, SAMPLINGS, request, same, serial, serve, tokens_of


@pytest.mark.requirement("T-291")
def test_replies_among_others_equal_solo_ones(runner: MakeRunner) -> None:
    """EX-04: whatever runs beside them, seeded or not, in whatever order they came."""
    references = [serial(runner, each) for each in OTHERS]
    for order in ((0, 1, 2, 3, 4), (4, 2, 0, 3, 1)):
        together, _ = serve(runner, *(OTHERS[place] for place in order))
        for place, answer in zip(order, together, strict=True):
            same(answer, references[place])


@pytest.mark.requirement("T-163")
def test_resumed_replies_equal_solo_ones(runner: MakeRunner) -> None:
    """Preempted for memory, replayed by the plan of their prompts, compared, not sent twice."""
    requests = [
        request(sampling, prompt=(*PROMPT, number), tokens=120)
        for number, sampling in enumerate(SAMPLINGS.values(), start=10)
    ]
    references = [serial(runner, each) for each in requests]
    together, details = serve(runner, *requests, positions=448, growth=1)
    assert details["preemptions_total"] > 0
    for answer, reference in zip(together, references, strict=True):
        same(answer, reference)


def test_drafts_company_and_short_memory_together_change_nothing(runner: MakeRunner) -> None:
    """All at once."""
    requests = [request(prompt=(*PROMPT, number), tokens=100, logprobs=2) for number in range(10, 15)]
    references = [serial(runner, each) for each in requests]
    replies = {(*PROMPT, number): tokens_of(answer) for number, answer in zip(range(10, 15), references, strict=True)}
    together, details = serve(runner, *requests, positions=384, growth=1, drafting=Recalled(replies, wrong_every=4))
    assert details["preemptions_total"] > 0
    for answer, reference in zip(together, references, strict=True):
        same(answer, reference)


@pytest.mark.parametrize("lanes", [1, 3, 8])
def test_choices_equal_requests_with_their_keys(runner: MakeRunner, lanes: int) -> None:
    """Forked from one prompt, or from a kept one when lanes are few, each choice is the reply of its own key."""
    references = [
        serial(runner, request(Sampling(temperature=1.0, seed=choice_key(11, choice)))) for choice in range(4)
    ]
    (whole,), _ = serve(runner, request(Sampling(temperature=1.0, seed=11), choices=4), lanes=lanes)
    assert whole.token_sha == tuple(each.token_sha[0] for each in references)
    assert [choice.text for choice in whole.choices] == [each.choices[0].text for each in references]
    assert len(set(whole.token_sha)) == 4

"""The checkpoint's own draft head: it follows every reply, guesses ahead, and changes nothing but the speed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tensorfold.compute.runner import HiddenRows
from tensorfold.contracts.step import Segment
from tensorfold.engine.settings import EngineSettings
from tensorfold.errors import BackendError
from tensorfold.ir import Answer, Limits, Request, Sampling, TokensPrompt
from tensorfold.testing.scripted import ScriptedDecoder, scripted_geometry, scripted_runner
from tensorfold.testing.toy_engine import answer, running, toy_engine

PROMPT = tuple(range(40, 77))


def request(prompt: tuple[int, ...] = PROMPT, reply: int = 41, **fields: Any) -> Request:
    return Request(
        id="r",
        prompt=TokensPrompt(prompt),
        limits=Limits(max_tokens=reply, ignore_eos=True),
        sampling=fields.pop("sampling", Sampling(temperature=0.9, seed=8)),
        **fields,
    )


def served(*requests: Request, together: bool = False, **engine_fields: Any) -> tuple[list[Answer], dict[str, Any]]:
    async def main() -> tuple[list[Answer], dict[str, Any]]:
        engine = toy_engine(chunk=16, **engine_fields)
        async with running(engine):
            if together:
                found = list(await asyncio.gather(*(answer(engine, each) for each in requests)))
            else:
                found = [await answer(engine, each) for each in requests]
            return found, dict(engine.status().details)

    return asyncio.run(main())


def alone(each: Request) -> Answer:
    (found,), _ = served(each)
    return found


@pytest.mark.parametrize(("depth", "rounds"), [(1, 20), (2, 14), (3, 10), (0, 40)])
def test_a_head_that_is_right_gives_as_many_tokens_a_round_as_it_goes_deep(depth: int, rounds: int) -> None:
    """Each round keeps the row that was due and every guess, greedy or sampled."""
    for sampling in (Sampling(temperature=0.0), Sampling(temperature=0.9, seed=8)):
        each = request(sampling=sampling)
        (found,), details = served(each, wrong=0, settings=EngineSettings(head_depth=depth))
        assert details["rounds_total"] == rounds
        assert found.token_sha == alone(each).token_sha
        assert found.usage.accepted_tokens == found.usage.drafted_tokens == (40 - rounds if depth else 0)


@pytest.mark.parametrize("wrong", [2, 3, 5])
def test_wrong_guesses_change_nothing(wrong: int) -> None:
    """Kept up to the first wrong one, and followed from there."""
    each = request()
    (found,), details = served(each, wrong=wrong)
    assert found.token_sha == alone(each).token_sha
    assert 0 < found.usage.accepted_tokens < found.usage.drafted_tokens
    assert details["rounds_total"] < 40


def test_several_replies_are_followed_in_one_step() -> None:
    """Of unlike lengths, beginning and ending at other times."""
    requests = [request(PROMPT[: 5 + 7 * number], 20 + 9 * number) for number in range(4)]
    found, _ = served(*requests, together=True, wrong=4)
    for one, each in zip(found, requests, strict=True):
        assert one.token_sha == alone(each).token_sha
        assert one.usage.accepted_tokens > 0


def test_the_head_goes_on_from_a_kept_prefix() -> None:
    """Its states are kept with the others."""
    each = request()
    (first, second), _ = served(each, each, wrong=0)
    assert second.usage.cached_tokens == 32
    assert first.usage.accepted_tokens == second.usage.accepted_tokens == 30
    assert first.token_sha == second.token_sha


def test_a_request_without_drafts_is_not_guessed_for() -> None:
    (found,), details = served(request(draft=False), wrong=0)
    assert (found.usage.drafted_tokens, details["rounds_total"]) == (0, 40)


def test_a_head_that_fails_is_turned_off_and_nobody_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told once; replies go on one token a round."""
    each = request()
    calls = 0

    def broken(self: Any, ops: Any, step: Any) -> Any:
        nonlocal calls
        calls += 1
        raise BackendError("the head is broken")

    reference = alone(each)
    monkeypatch.setattr("tensorfold.testing.scripted._ScriptedHead.forward", broken)
    (found, again), details = served(each, each, wrong=0)
    assert found.token_sha == again.token_sha == reference.token_sha
    assert found.usage.drafted_tokens == 0
    assert calls == 1
    assert details["requests_failed"] == 0


def test_draft_rows_go_back_to_any_length() -> None:
    """Where the head's states are pages alone; the decoder's own rows stay."""
    runner = scripted_runner([], scripted_geometry(vocabulary=99), wrong=0)
    slot = runner.acquire()
    assert slot is not None and runner.drafts and runner.can_rewind_drafts
    output = runner.forward([Segment(slot, PROMPT[:5], 0, want="all")])
    runner.commit(slot, 5)
    runner.draft([Segment(slot, PROMPT[1:6], 0)], [HiddenRows(output, 0, 5)])
    with pytest.raises(BackendError, match="cannot go back"):
        runner.rewind_drafts(slot, 3)
    runner.commit(slot, 5, "draft")
    runner.rewind_drafts(slot, 3)
    assert (runner.length(slot), runner.length(slot, "draft")) == (5, 3)
    with pytest.raises(BackendError, match="cannot go back"):
        runner.rewind_drafts(slot, 4)


def test_a_model_without_a_head_has_none() -> None:
    assert not scripted_runner([], scripted_geometry(vocabulary=99)).drafts
    assert ScriptedDecoder(scripted_geometry(vocabulary=99), []).draft is None

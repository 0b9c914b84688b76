"""Drafts by copying from the text before."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tensorfold.engine.copies import MATCH, CopyDrafting

PASSAGE = tuple(range(100, 130))


def after(prompt: Sequence[int], reply: Sequence[int] = (), most: int = 4) -> list[int]:
    drafter = CopyDrafting().begin(tuple(prompt))
    for token in reply:
        drafter.extend(token)
    return list(drafter.propose(most))


def test_what_followed_the_last_eight_tokens_is_guessed_again() -> None:
    prompt = (*PASSAGE, 1, 2, 3, *PASSAGE[:MATCH])
    assert after(prompt) == [108, 109, 110, 111]


def test_seven_tokens_are_too_few() -> None:
    assert after((*PASSAGE, 1, 2, 3, *PASSAGE[: MATCH - 1])) == []


def test_a_match_may_begin_in_the_prompt_and_end_in_the_reply() -> None:
    assert after((*PASSAGE, 1, *PASSAGE[:5]), PASSAGE[5:8]) == [108, 109, 110, 111]


def test_a_copied_passage_goes_on_while_the_reply_agrees() -> None:
    prompt = (*PASSAGE, 1, *PASSAGE[:MATCH])
    assert after(prompt, PASSAGE[8:12]) == list(PASSAGE[12:16])
    assert after(prompt, (*PASSAGE[8:12], 7)) == [], "another token ends it"


def test_the_reply_itself_is_copied_too() -> None:
    assert after((1, 2), (*PASSAGE, 3, *PASSAGE[:MATCH])) == [108, 109, 110, 111]


def test_of_several_places_the_last_one_is_copied() -> None:
    start = PASSAGE[:MATCH]
    assert after((*start, 5, 5, *start, 6, 6, *start), most=2) == [6, 6]


def test_a_loop_is_taken_to_go_on() -> None:
    """A passage that runs into the present is continued round and round."""
    assert after((1, 2, 3) * 5, most=7) == [1, 2, 3, 1, 2, 3, 1]


def test_short_prompts_are_no_trouble() -> None:
    for length in range(MATCH + 2):
        assert after(range(length)) == []


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=40), st.integers(1, 9))
def test_every_guess_continues_an_earlier_match(prompt: list[int], reply: list[int], most: int) -> None:
    """As many as asked for, or none; and none only where the last eight tokens never stood before."""
    guesses = after(prompt, reply, most)
    text = [*prompt, *reply]
    tail = text[-MATCH:]
    before = [place for place in range(MATCH, len(text)) if text[place - MATCH : place] == tail]
    assert len(guesses) in (0, most)
    if before and len(text) >= MATCH:
        assert guesses, "there was a match"
        assert any(_continues(text, place, guesses) for place in before)


def _continues(text: list[int], place: int, guesses: list[int]) -> bool:
    longer = [*text, *guesses]
    return all(longer[place + number] == guess for number, guess in enumerate(guesses))


def test_large_token_ids_are_told_apart() -> None:
    """Hashes of 64 bits: a random text of a large vocabulary has no match."""
    chance = random.Random(0)
    assert after([chance.randrange(250_000) for _ in range(20_000)]) == []


def test_choices_of_one_prompt_share_its_passages_and_nothing_else() -> None:
    drafting, prompt = CopyDrafting(), (*PASSAGE, 1, *PASSAGE[:MATCH])
    one, other = drafting.begin(prompt), drafting.begin(prompt)
    one.extend(9)
    assert list(one.propose(2)) == []
    assert list(other.propose(2)) == [108, 109]

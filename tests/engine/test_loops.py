"""Replies that only repeat themselves are stopped, and no others."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorfold.chat.formats import QwenFormat
from tensorfold.engine.loops import LoopDetector, Repeat, edit_distance
from tensorfold.errors import GenerationFailed
from tensorfold.ir import Event, Failed, Limits, Request, Stopped, TextDelta, TokensPrompt, fold
from tensorfold.testing.toy_chat import ToyChat, chat_request

RANDOM = random.Random(0)
WORDS = ["".join(RANDOM.choices("abcdefghijklmnopqrstuvwxyz", k=RANDOM.randint(2, 9))) for _ in range(400)]


def prose(words: int, seed: int = 0) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def caught(text: str, size: int = 4) -> tuple[Repeat, int] | None:
    """What is found in a text of tokens of so many characters, and behind how many of them."""
    detector = LoopDetector()
    for number, at in enumerate(range(0, len(text), size), start=1):
        piece = text[at : at + size]
        found = detector.feed(hash(piece), piece)
        if found:
            return found, number
    return None


@pytest.mark.requirement("Y-021", "Y-025")
@pytest.mark.parametrize("period", [1, 3, 40, 200, 255, 256, 300, 1000, 3000])
def test_an_exact_repeat_is_caught_after_four_copies_and_1024_tokens(period: int) -> None:
    """Whatever its length, and soon after that."""
    unit = prose(period * 4)[: 4 * period]
    begin = prose(500, seed=1)[:2000]
    found = caught(begin + unit * (4096 // period + 10))
    least = 500 + max(1024, 4 * period)
    assert found is not None
    assert found[0] == "exact"
    assert least <= found[1] <= least + period + 64


def test_copies_that_repeat_within_themselves_are_caught() -> None:
    """A unit of many equal parts and one that differs."""
    unit = ("the same line again;" * 50 + "and another one here")[: 4 * 250]
    found = caught(unit * 12)
    assert found is not None
    assert found[1] <= 2200


@pytest.mark.requirement("Y-026")
@pytest.mark.parametrize(
    "line",
    [
        "Step {n}: look at the {n}th door, and open it. It is locked, so go back to where you began.\n",
        "{n}.\t{blank}The quick brown fox jumps over the lazy dog, and the dog does nothing at all about it.{blank}\n",
    ],
)
def test_a_near_repeat_is_caught_after_eight_copies_and_8192_tokens(line: str) -> None:
    """Copies that differ in digits and blanks alone."""
    text = "".join(line.format(n=n, blank=" " * (n % 5 + 1)) for n in range(3000))
    found = caught(text)
    assert found is not None
    assert found[0] == "near"
    assert 8192 <= found[1] <= 9300


@pytest.mark.parametrize("copy", [150, 900])
def test_copies_that_differ_in_a_tenth_are_nearly_the_same(copy: int) -> None:
    """Each time other words are exchanged."""
    unit = prose(copy).split()
    share = max(1, copy // 40)
    copies: list[str] = []
    for number in range(60):
        words = list(unit)
        for place in random.Random(number).sample(range(20, copy), share):
            words[place] = "zzzz"
        copies.append(" ".join(words))
    found = caught(" ".join(copies))
    assert found is not None
    assert found[0] == "near"
    assert found[1] >= max(8192, 8 * copy)


def test_copies_that_differ_in_more_are_not() -> None:
    lines: list[str] = []
    for number in range(3000):
        words = random.Random(number).choices(WORDS, k=8)
        lines.append(f"- the item called {' '.join(words)} is one of many that are listed here\n")
    assert caught("".join(lines)) is None


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"warehouse/north-region/building-7/aisle-12/shelf-number-item-{n}\n" for n in range(1, 201)),
        "".join(f"| a | b | {n} | rows\n" for n in range(40)),
        "-" * 600,
        prose(12_000),
        "".join(prose(40, seed=n) + "\n" for n in range(400)),
    ],
    ids=["a list", "a table", "a rule", "prose", "paragraphs"],
)
def test_texts_that_only_look_alike_are_left_alone(text: str) -> None:
    """LD-01: lists with a common beginning, tables and rules are no loops."""
    for size in (1, 4) if len(text) < 4000 else (4,):
        assert caught(text, size) is None


def test_a_loop_that_ends_is_not_caught_later() -> None:
    """Something else happened in between."""
    assert caught(prose(60)[:300] * 3 + prose(6000, seed=2)) is None


@given(st.text("abc", max_size=12), st.text("abc", max_size=12))
def test_the_edit_distance_is_the_usual_one(one: str, other: str) -> None:
    row = list(range(len(other) + 1))
    for number, left in enumerate(one, start=1):
        above, row = row, [number]
        for place, right in enumerate(other, start=1):
            row.append(min(above[place] + 1, row[-1] + 1, above[place - 1] + (left != right)))
    assert edit_distance(one, other) == row[-1]


# ---- in a reply --------------------------------------------------------------------------------------------

LOOP = "again and again; " * 150


def reply(text: str = LOOP, **limits: Any) -> list[Event]:
    request = Request(id="r", prompt=TokensPrompt((1,)), limits=Limits(max_tokens=3000, **limits))
    return ToyChat(format=QwenFormat()).events(text, request)


@pytest.mark.requirement("Y-021", "Y-022", "Y-023", "T-140")
def test_a_reply_that_loops_ends_with_repetition() -> None:
    """On unless turned off; with `ignore_eos` only when asked for, for then the whole length is wanted."""

    def reason(**limits: Any) -> str:
        return fold(reply(**limits)).choices[0].reason

    assert reason() == reason(loop_detect=True) == reason(ignore_eos=True, loop_detect=True) == "repetition"
    assert reason(loop_detect=False) == "end"
    assert reason(ignore_eos=True) == "length"
    assert reason(ignore_eos=True, stop=("again",)) == "stop"


def test_a_loop_ends_at_the_same_token_drafted_serial_and_beside_others() -> None:
    answer = ToyChat(format=QwenFormat()).answer(LOOP, chat_request(limits=Limits(max_tokens=3000)))
    assert answer.choices[0].reason == "repetition"
    assert answer.usage.completion_tokens == 1024


@pytest.mark.requirement("Y-030")
def test_a_loop_within_the_reasoning_stays_there() -> None:
    """There is no content then."""
    chat = ToyChat(format=QwenFormat(), tail="assistant:<think>\n")
    (choice,) = fold(chat.events(LOOP, chat_request(limits=Limits(max_tokens=3000)))).choices
    assert (choice.reason, choice.text) == ("repetition", "")
    assert choice.thinking.startswith("again and again; again")


@pytest.mark.requirement("Y-031", "Y-035")
def test_a_loop_may_fail_the_request() -> None:
    """What was written is sent before; the error says that a retry needs another seed."""
    *sent, last = reply(loop_detect_error=True)
    assert sum(len(event.text) for event in sent if isinstance(event, TextDelta)) == 1024
    assert not any(isinstance(event, Stopped) for event in sent)
    assert isinstance(last, Failed)
    assert (last.status, last.code, last.error_type) == (500, "loop_detected", "server_error")
    assert "a fixed seed, and a seed that comes from the prompt loop again" in last.message
    with pytest.raises(GenerationFailed):
        fold([*sent, last])


@pytest.mark.requirement("Y-144", "Y-145")
@pytest.mark.parametrize(("text", "shown", "tokens"), [("Hello", "H", 1), ("🌧 rain", "🌧", 4), ("é", "é", 2)])
def test_a_reply_may_end_at_its_first_text(text: str, shown: str, tokens: int) -> None:
    """With `length`, and never within a character."""
    answer = fold(reply(text, stop_after_output=True))
    assert (answer.choices[0].text, answer.choices[0].reason) == (shown, "length")
    assert answer.usage.completion_tokens == tokens


@pytest.mark.requirement("Y-146")
def test_a_reply_names_what_ended_it() -> None:
    """The end token, a stop token, a stop string, or nothing."""
    assert fold(reply("Hi")).choices[0].ended_by == "<end>"
    assert fold(reply("Hi there", stop=("the",))).choices[0].ended_by == "the"
    assert fold(reply("Hi there", stop_token_ids=(ord("t"),))).choices[0].ended_by == "t"
    assert (
        fold(ToyChat(format=QwenFormat()).events("Hi", chat_request(limits=Limits(max_tokens=1)))).choices[0].ended_by
        is None
    )

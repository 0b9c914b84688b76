"""Where a reply is, and the budget of its reasoning."""

from __future__ import annotations

import json

import pytest

from tensorfold.chat.formats import GemmaFormat, QwenFormat
from tensorfold.contracts.chat import CallMarks, ThinkingMarks
from tensorfold.engine.thinking import Place, PlaceTracker
from tensorfold.ir import Limits, ToolChoice, fold
from tensorfold.testing.golden import TOOLS
from tensorfold.testing.golden.tagged import PARIS
from tensorfold.testing.toy_chat import ToyChat, chat_request, spelled
from tensorfold.testing.toy_tokenizer import ToyTokenizer

MARKED = ToyTokenizer(words=("<tool_call>", "</tool_call>", "<think>", "</think>", " why", "\n\n"), control=("<end>",))
OPEN = "assistant:<think>\n"
BOTH = pytest.mark.parametrize("tokenizer", [ToyTokenizer(), MARKED], ids=["marks in pieces", "marks as tokens"])


def follow(tracker: PlaceTracker, place: Place, text: str) -> list[Place]:
    """The place behind each byte."""
    places: list[Place] = []
    for byte in text.encode():
        place = tracker.advance(place, bytes([byte]))
        places.append(place)
    return places


@pytest.mark.parametrize(
    ("begin", "text", "part"),
    [
        ("begin", "", "begin"),
        ("begin", " \n", "begin"),
        ("begin", " <thi", "begin"),
        ("begin", " <think>", "thinking"),
        ("begin", "<thin ", "answer"),
        ("begin", "x<think>", "answer"),
        ("thinking", "a </think", "thinking"),
        ("thinking", "a </think>", "answer"),
        ("thinking", "a </think></think><think>", "answer"),
        ("begin", " " * 300, "answer"),
    ],
)
def test_a_tracker_knows_the_part_that_a_text_ends_in(begin: str, text: str, part: str) -> None:
    tracker = PlaceTracker(ThinkingMarks())
    whole = tracker.advance(Place(begin), text.encode())  # type: ignore[arg-type]
    bytewise = [Place(begin), *follow(tracker, Place(begin), text)][-1]  # type: ignore[arg-type]
    assert whole.part == bytewise.part == part


def test_what_stands_behind_the_end_of_the_reasoning_is_the_answers() -> None:
    tracker = PlaceTracker(ThinkingMarks())
    assert tracker.advance(Place("thinking"), b"x</think>\n\n{").answered == b"\n\n{"
    assert tracker.advance(Place("begin"), b" x").answered == b" x"
    assert tracker.advance(Place("answer"), b"y").answered == b"y"


def test_reasoning_begins_again_where_its_mark_is_a_control_token() -> None:
    tracker = PlaceTracker(GemmaFormat().marks.thinking)
    text = "a<|channel>thought\nb<channel|>c"
    parts = "".join(place.part[0] for place in follow(tracker, Place("answer"), text))
    assert parts == "a" * 17 + "t" * 12 + "a" * 2


@pytest.mark.parametrize(
    ("text", "called", "calls", "part"),
    [
        ("x <tool_call>\n<func", True, 0, "thinking"),
        ("x <tool_call> is", False, 0, "thinking"),
        (PARIS[:-1], True, 0, "thinking"),
        (PARIS, False, 1, "thinking"),
        (PARIS + PARIS, False, 2, "thinking"),
        (PARIS + "</think>", False, 1, "answer"),
        (PARIS[:60] + "</think>", False, 0, "answer"),
        ("<tool_call>\n<function=nope>\n</function>", False, 0, "thinking"),
    ],
)
def test_a_tracker_follows_calls_within_the_reasoning(text: str, called: bool, calls: int, part: str) -> None:
    def begins(text: str) -> bool | None:
        return QwenFormat().begins_call(chat_request(TOOLS), text)

    tracker = PlaceTracker(ThinkingMarks(), CallMarks("<tool_call>", "</tool_call>"), begins)
    for place in (tracker.advance(Place("thinking"), text.encode()), follow(tracker, Place("thinking"), text)[-1]):
        assert (place.called, place.calls, place.part) == (called, calls, part)


# ---- the budget --------------------------------------------------------------------------------------------


@pytest.mark.requirement("T-109", "T-242", "T-243", "T-244")
@BOTH
def test_the_reasoning_is_closed_at_the_budget(tokenizer: ToyTokenizer) -> None:
    """That token gives way to a line break, the end mark and a blank line, drafted, serial and beside others alike."""
    chat = ToyChat(format=QwenFormat(), tail=OPEN, tokenizer=tokenizer)
    text = "I wonder why</think>\n\nBecause."
    tokens = spelled(tokenizer, text)
    inside = len(spelled(tokenizer, "I wonder why"))
    close = len(tokenizer.encode("\n</think>", add_special_tokens=False, parse_special=True))
    for budget in range(1, len(tokens) + 2):
        answer = chat.answer(text, chat_request(limits=Limits(thinking_budget=budget, max_tokens=48)))
        (choice,) = answer.choices
        kept = b"".join(map(tokenizer.token_bytes, tokens[: budget - 1])).decode()
        if budget <= inside:
            assert choice.thinking == kept.rstrip()
            assert answer.usage.reasoning_tokens == budget - 1 + close
        elif budget > inside + len(spelled(tokenizer, "</think>")):
            assert (choice.thinking, choice.text) == ("I wonder why", "Because.")


@pytest.mark.requirement("T-241")
def test_the_requests_budget_goes_before_the_servers() -> None:
    """Absent or 0 takes the server's."""
    chat = ToyChat(format=QwenFormat(), tail=OPEN, budget=4)

    def thinking(budget: int | None) -> str:
        request = chat_request(limits=Limits(thinking_budget=budget, max_tokens=24))
        return chat.answer("abcdefghij", request).choices[0].thinking

    assert thinking(None) == thinking(0) == "abc"
    assert thinking(7) == "abcdef"
    assert thinking(100) == "abcdefghij"


def test_reasoning_that_the_reply_opens_itself_has_the_same_budget() -> None:
    """The budget counts the reply's tokens."""
    chat = ToyChat(format=QwenFormat())
    choice = chat.answer("<think>abcdefgh", chat_request(limits=Limits(thinking_budget=12, max_tokens=40))).choices[0]
    assert choice.thinking == "abcd"
    gemma = ToyChat(format=GemmaFormat(), tokenizer=ToyTokenizer(control=("<end>", "<|channel>", "<channel|>")))
    text = "<|channel>thought\nabcdefgh<channel|>yes"
    choice = gemma.answer(text, chat_request(limits=Limits(thinking_budget=12, max_tokens=40))).choices[0]
    assert choice.thinking == "ab"


def test_a_reply_that_does_not_think_is_left_alone() -> None:
    choice = (
        ToyChat(format=QwenFormat()).answer("Hello there.", chat_request(limits=Limits(thinking_budget=2))).choices[0]
    )
    assert (choice.thinking, choice.text, choice.reason) == ("", "Hello there.", "end")


@BOTH
def test_a_call_within_the_reasoning_is_not_cut(tokenizer: ToyTokenizer) -> None:
    """TB-01: at every budget the call is whole, or the reasoning is closed before any of its markup."""
    chat = ToyChat(format=QwenFormat(), tail=OPEN, tokenizer=tokenizer)
    text = f"Need it.\n{PARIS}"
    whole = 0
    for budget in range(1, len(spelled(tokenizer, text)) + 2):
        limits = Limits(thinking_budget=budget, max_tokens=160)
        request = chat_request(TOOLS, limits=limits)
        answer = chat.answer(text, request) if budget % 11 == 0 else fold(chat.events(text, request))
        choice = answer.choices[0]
        assert "tool_call" not in choice.thinking
        if choice.calls:
            whole += 1
            assert [json.loads(call.arguments) for call in choice.calls] == [{"city": "Paris"}]
            assert (choice.thinking, choice.text, choice.reason) == ("Need it.", "", "tool_calls")
        else:
            assert "Need it.".startswith(choice.thinking)
    assert whole > 5


def test_thinking_that_goes_on_behind_a_call_is_closed() -> None:
    """The call was a mention then."""
    chat = ToyChat(format=QwenFormat(), tail=OPEN)
    limits = Limits(thinking_budget=20, max_tokens=160)
    choice = chat.answer(f"{PARIS}\nNo, wait.", chat_request(TOOLS, limits=limits)).choices[0]
    assert (choice.thinking, choice.calls) == (PARIS, ())


def test_without_tools_nothing_in_the_reasoning_is_a_call() -> None:
    chat = ToyChat(format=QwenFormat(), tail=OPEN)
    limits = Limits(thinking_budget=20, max_tokens=60)
    for request in (chat_request(limits=limits), chat_request(TOOLS, limits=limits, tool_choice=ToolChoice("none"))):
        assert chat.answer(PARIS, request).choices[0].thinking == PARIS[:19]

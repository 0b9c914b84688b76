"""Whole replies of conversations, as public reports say they go wrong: through the engine, drafted, serial, in company."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.chat.formats import GemmaFormat, QwenFormat
from tensorfold.ir import (
    ChoiceAnswer,
    Limits,
    Stopped,
    TextDelta,
    ThinkingDelta,
    Tool,
    ToolCallDelta,
    ToolChoice,
)
from tensorfold.testing.golden.tagged import PARIS, ROME
from tensorfold.testing.toy_chat import ToyChat, chat_request, spelled
from tensorfold.testing.toy_tokenizer import ToyTokenizer

WEATHER = Tool(
    "get_weather", None, {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
)
OPEN = "assistant:<think>\n"


def reply(text: str, *, tail: str = "assistant:", **fields: Any) -> ChoiceAnswer:
    return ToyChat(format=QwenFormat(), tail=tail).answer(text, chat_request((WEATHER,), **fields)).choices[0]


@pytest.mark.requirement("T-273")
def test_a_reply_with_calls_ends_with_tool_calls() -> None:
    """TC-16, TC-35: without any configuration, and never as a plain stop."""
    choice = reply(PARIS)
    assert (choice.reason, choice.text) == ("tool_calls", "")
    assert [(call.name, json.loads(call.arguments)) for call in choice.calls] == [("get_weather", {"city": "Paris"})]


@pytest.mark.requirement("T-179", "T-180", "T-181")
@pytest.mark.parametrize(
    "text",
    [
        '{"answer": 4}',
        "<tool_call>\nnot json\n</tool_call>",
        '<tool_call>\n{"name": 5}\n</tool_call>',
        "<tool_call></tool_call>",
        "see <tool_call> in the docs",
        PARIS.replace("get_weather", "rm_rf"),
    ],
)
def test_a_reply_that_is_no_call_is_content(text: str) -> None:
    """TC-09, TC-29: as it was written, and never an error."""
    choice = reply(text)
    assert (choice.text, choice.calls, choice.reason) == (text, (), "end")


@pytest.mark.requirement("T-184", "T-089", "T-182")
def test_usage_counts_calls_that_are_left_out() -> None:
    """TC-30: one call is told of, and all of the reply is counted."""
    text = f"Sure.\n{PARIS}\n{ROME}"
    chat = ToyChat(format=QwenFormat())
    single = chat.answer(text, chat_request((WEATHER,), tool_choice=ToolChoice(parallel=False)))
    both = chat.answer(text, chat_request((WEATHER,)))
    assert [json.loads(call.arguments) for call in single.choices[0].calls] == [{"city": "Paris"}]
    assert [json.loads(call.arguments) for call in both.choices[0].calls] == [{"city": "Paris"}, {"city": "Rome"}]
    assert single.usage.completion_tokens == both.usage.completion_tokens == len(text) + 1
    assert single.choices[0].reason == both.choices[0].reason == "tool_calls"


def test_parallel_calls_have_indices_and_ids_of_their_own() -> None:
    """TC-12: id and name on the first piece alone, so that clients can join by index."""
    events = ToyChat(format=QwenFormat()).events(f"{PARIS}\n{ROME}", chat_request((WEATHER,)))
    deltas = [event for event in events if isinstance(event, ToolCallDelta)]
    firsts = [delta for delta in deltas if delta.id is not None]
    assert [(delta.index, delta.name) for delta in firsts] == [(0, "get_weather"), (1, "get_weather")]
    assert firsts[0].id != firsts[1].id
    for index, city in enumerate(("Paris", "Rome")):
        assert json.loads("".join(delta.arguments for delta in deltas if delta.index == index)) == {"city": city}


def test_a_call_that_is_cut_is_no_finished_one() -> None:
    """TC-03: at every limit the reason is the limit's; the model's own end within a call is a plain one."""
    whole = len(spelled(ToyTokenizer(), PARIS))
    for most in range(whole - 30, whole + 1):
        choice = reply(PARIS, limits=Limits(max_tokens=most))
        assert choice.reason == "length"
    choice = reply(PARIS[:60])
    assert (choice.reason, len(choice.calls)) == ("end", 1)
    with pytest.raises(ValueError, match="Unterminated"):
        json.loads(choice.calls[0].arguments)


@pytest.mark.requirement("T-140")
def test_a_reply_that_ignores_its_end_tokens_ends_by_its_limit() -> None:
    """Unless it has called: then it ends with its calls. End tokens within are text."""
    limits = Limits(max_tokens=400, ignore_eos=True)
    choice = reply("Hello.", limits=limits)
    assert choice.reason == "length"
    assert choice.text.startswith("Hello.<end>")
    assert reply(PARIS, limits=limits).reason == "tool_calls"


def test_a_reply_cut_while_thinking_has_no_content() -> None:
    """RE-01: reasoning, streamed and whole."""
    choice = reply("Let me think about", tail=OPEN, limits=Limits(max_tokens=18))
    assert (choice.thinking, choice.text, choice.reason) == ("Let me think about", "", "length")


@pytest.mark.requirement("T-276")
def test_reasoning_tokens_are_counted_through_the_closing_mark() -> None:
    """And no further; of a reply without reasoning there are none."""
    chat = ToyChat(format=QwenFormat(), tail=OPEN)
    assert chat.answer("why</think>\n\n42", chat_request()).usage.reasoning_tokens == len("why</think>")
    assert ToyChat(format=QwenFormat()).answer("42", chat_request()).usage.reasoning_tokens == 0


@pytest.mark.requirement("T-188", "T-276")
@pytest.mark.parametrize("behind", ["", "\n", PARIS])
def test_the_tokens_of_a_call_that_ends_the_reasoning_are_none_of_it(behind: str) -> None:
    """Reasoning that ends in the reply's call is counted up to it; one that was closed, through its mark."""
    chat = ToyChat(format=QwenFormat(), tail=OPEN)
    answer = chat.answer(f"why\n{PARIS}{behind}", chat_request((WEATHER,)))
    assert (answer.choices[0].thinking, answer.choices[0].reason) == ("why", "tool_calls")
    assert answer.usage.reasoning_tokens == len("why\n")
    mentioned = f"why\n{PARIS}{behind}</think>"
    assert chat.answer(f"{mentioned}42", chat_request((WEATHER,))).usage.reasoning_tokens == len(mentioned)


def test_one_reply_stops_once_and_at_its_end() -> None:
    """RE-06: reasoning, text, and then the end."""
    events = ToyChat(format=QwenFormat()).events("<think>\nfour\n</think>\n\n4", chat_request())
    kinds = [type(event) for event in events if isinstance(event, ThinkingDelta | TextDelta | Stopped)]
    assert kinds == sorted(kinds, key=[ThinkingDelta, TextDelta, Stopped].index)
    assert kinds.count(Stopped) == 1


def test_a_think_mark_within_an_argument_is_data() -> None:
    """TC-22: with thinking off."""
    tool = Tool("write_file", None, {"type": "object", "properties": {"content": {"type": "string"}}})
    text = (
        PARIS.replace("get_weather", "write_file").replace("city", "content").replace("Paris", "use <think>x</think>")
    )
    chat = ToyChat(format=QwenFormat(), tail="assistant:<think>\n\n</think>\n\n", thinking=False)
    (choice,) = chat.answer(text, chat_request((tool,))).choices
    assert json.loads(choice.calls[0].arguments) == {"content": "use <think>x</think>"}
    assert choice.thinking == ""


def test_marks_that_are_control_tokens_are_read_and_not_shown() -> None:
    """Gemma's are; its turn also ends where a result would begin."""
    controls = ("<end>", "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>', "<|tool_response>", "<x>")
    chat = ToyChat(format=GemmaFormat(), tokenizer=ToyTokenizer(control=controls))
    call = '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>'
    text = f"<|channel>thought\nhm\n<channel|>ok<x>{call}<|tool_response>never"
    answer = chat.answer(text, chat_request((WEATHER,)))
    (choice,) = answer.choices
    assert (choice.thinking, choice.text, choice.reason) == ("hm", "ok", "tool_calls")
    assert json.loads(choice.calls[0].arguments) == {"city": "Paris"}
    assert choice.ended_by == "<|tool_response>"

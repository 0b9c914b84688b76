"""Calls that a reply must make."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.chat.formats import GemmaFormat, GlmFormat, HermesFormat, QwenFormat
from tensorfold.chat.plain import PlainFormat
from tensorfold.contracts.chat import ChatFormat
from tensorfold.errors import RequestError
from tensorfold.ir import JsonObject, Limits, Sampling, Tool, ToolChoice
from tensorfold.testing.golden.tagged import PARIS
from tensorfold.testing.toy_chat import ToyChat, chat_request, spelled
from tensorfold.testing.toy_tokenizer import ToyTokenizer

CONTROLS = ("<end>", "<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>", "<|tool_response>", "<turn|>")
GEMMA_TOKENIZER = ToyTokenizer(control=CONTROLS)
WORDS = ToyTokenizer(words=("<tool_call>", "</tool_call>", "</think>", "get_", "weather", ">\n", "get", "_t", " x"))

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = (Tool("get_weather", None, SCHEMA), Tool("get_time"), Tool("book", None, SCHEMA))
REQUIRED = ToolChoice("required")
LIMITS = Limits(max_tokens=120)

OPENINGS = {
    "qwen": (QwenFormat(), "<tool_call>\n<function=", ">\n<parameter=", ">\n</function>\n</tool_call>"),
    "hermes": (HermesFormat(), '<tool_call>\n{"name": "', '", "arguments": {"', '", "arguments": {}}\n</tool_call>'),
    "glm": (GlmFormat(), "<tool_call>", "<arg_key>", "</tool_call>"),
    "gemma": (GemmaFormat(), "<|tool_call>call:", "{", "{}<tool_call|>"),
}


def chat_of(format: ChatFormat, **fields: Any) -> ToyChat:
    tokenizer = GEMMA_TOKENIZER if isinstance(format, GemmaFormat) else ToyTokenizer()
    return ToyChat(format=format, **{"tokenizer": tokenizer, **fields})


@pytest.mark.requirement("T-088", "T-191", "T-192", "T-194", "T-196")
@pytest.mark.parametrize("name", OPENINGS)
@pytest.mark.parametrize("reply", ["Hello, I will not call.", "", "  \n Hello.", "{}", "<tool_cal"])
def test_the_answer_opens_a_call(name: str, reply: str) -> None:
    """In place of the first token that is no white space stand the opener and what the template writes ahead of a name;
    drafted, serial and concurrent replies write the same call.
    """
    chat = chat_of(OPENINGS[name][0])
    (choice,) = chat.answer(reply, chat_request(TOOLS, tool_choice=REQUIRED, limits=LIMITS)).choices
    assert choice.calls
    assert choice.calls[0].name in [tool.name for tool in TOOLS]
    assert choice.text.strip() == ""


@pytest.mark.requirement("T-114", "T-115")
@pytest.mark.parametrize("name", ["qwen", "hermes"])
def test_a_token_that_is_put_in_anothers_place_has_its_own_log_probability(name: str) -> None:
    """A token that a gate puts in another's place has the log-probability of the model's raw distribution."""
    opening = OPENINGS[name][1]
    request = chat_request(TOOLS, tool_choice=REQUIRED, limits=Limits(max_tokens=120, stop=("et_w",)), logprobs=1)
    (choice,) = chat_of(OPENINGS[name][0]).answer("Hello, I will not call.", request).choices
    assert choice.text == f"{opening}g"
    assert b"".join(token.data for token in choice.tokens).decode() == choice.text
    assert choice.tokens[0].alternatives[0].data == b"H"
    numbers = [token.logprob for token in choice.tokens if token.logprob is not None]
    assert len(numbers) == len(choice.tokens)
    assert numbers[0] < -1000
    assert all(own <= token.alternatives[0].logprob for own, token in zip(numbers, choice.tokens, strict=True))


@pytest.mark.requirement("T-193")
@pytest.mark.parametrize("name", OPENINGS)
@pytest.mark.parametrize(
    ("said", "called"),
    [
        ("get_weather", "get_weather"),
        ("get_t", "get_time"),
        ("bake", "book"),
        ("rm", "get_weather"),
        ("", "get_weather"),
    ],
)
def test_only_offered_names_can_be_written(name: str, said: str, called: str) -> None:
    """At the first token outside them the first name with the prefix so far is completed."""
    format, opening, behind, nothing = OPENINGS[name]
    reply = f"{opening}{said}!!!{behind}"
    (choice,) = chat_of(format).answer(reply, chat_request(TOOLS, tool_choice=REQUIRED, limits=LIMITS)).choices
    assert choice.calls[0].name == called
    if called == "get_time" and name != "gemma":
        assert choice.calls[0].arguments == "{}", nothing


@pytest.mark.requirement("T-198")
def test_the_model_writes_the_arguments() -> None:
    """What it says of a call by itself is kept as it is."""
    (choice,) = chat_of(QwenFormat()).answer(PARIS, chat_request(TOOLS, tool_choice=REQUIRED)).choices
    assert [(call.name, json.loads(call.arguments)) for call in choice.calls] == [("get_weather", {"city": "Paris"})]
    assert choice.reason == "tool_calls"


@pytest.mark.requirement("T-195")
def test_a_named_function_is_the_one_that_is_called() -> None:
    """Whatever else is offered."""
    for name in ("book", "get_time"):
        choice = ToolChoice("required", name)
        (found,) = chat_of(QwenFormat()).answer(PARIS, chat_request(TOOLS, tool_choice=choice, limits=LIMITS)).choices
        assert found.calls[0].name == name


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0), Sampling(temperature=1.3, seed=3)])
def test_tokens_of_several_letters_are_held_to_the_names(sampling: Sampling) -> None:
    """A token may hold the name's end and what stands behind it, or leave the names in its middle."""
    chat = ToyChat(format=QwenFormat(), tokenizer=WORDS)
    for said in (" x", "get_weather>\n", "get_ x", "get_t", "get weather", "<tool_call>\n<function=get_weather x"):
        request = chat_request(TOOLS, tool_choice=REQUIRED, limits=LIMITS, sampling=sampling)
        (choice,) = chat.answer(said, request).choices
        assert choice.calls[0].name in ("get_weather", "get_time")


def test_a_call_comes_behind_the_reasoning() -> None:
    """Thinking is free; where it ends, the call begins. An end token does not end the reply before there is one."""
    open_ = chat_of(QwenFormat(), tail="assistant:<think>\n")
    request = chat_request(TOOLS, tool_choice=REQUIRED, limits=LIMITS)
    (choice,) = open_.answer("why not\n</think>\n\nNo.", request).choices
    assert (choice.thinking, choice.calls[0].name, choice.text) == ("why not", "get_weather", "")
    (choice,) = open_.answer("why not", chat_request(TOOLS, tool_choice=REQUIRED, limits=Limits(max_tokens=30))).choices
    assert choice.reason == "length", "the model goes on thinking"
    (choice,) = open_.answer(f"Need it.\n{PARIS}", request).choices
    assert (choice.thinking, choice.reason, len(choice.calls)) == ("Need it.", "tool_calls", 1)


def test_a_budget_and_a_call_hold_together() -> None:
    """The reasoning is closed in time, and the call comes behind it."""
    chat = chat_of(QwenFormat(), tail="assistant:<think>\n")
    limits = Limits(max_tokens=120, thinking_budget=6)
    (choice,) = chat.answer("for ever and ever", chat_request(TOOLS, tool_choice=REQUIRED, limits=limits)).choices
    assert (choice.thinking, choice.calls[0].name) == ("for e", "get_weather")


def test_a_format_that_may_think_by_itself_may_do_so_first() -> None:
    gemma = "<|channel>thought\nhm\n<channel|>No."
    for thinking, thought in ((True, "hm"), (None, ""), (False, "")):
        chat = chat_of(GemmaFormat(), thinking=thinking)
        (choice,) = chat.answer(gemma, chat_request(TOOLS, tool_choice=REQUIRED, limits=LIMITS)).choices
        assert (choice.thinking, choice.calls[0].name) == (thought, "get_weather")


def test_a_call_that_is_cut_is_reported_as_cut() -> None:
    """TC-03: at every limit the finish reason is the limit's, unless the call is whole."""
    whole = len(spelled(ToyTokenizer(), PARIS))
    for most in range(1, whole + 1, 3):
        request = chat_request(TOOLS, tool_choice=REQUIRED, limits=Limits(max_tokens=most))
        choice = chat_of(QwenFormat()).answer(PARIS, request).choices[0]
        assert choice.reason == "length"


@pytest.mark.requirement("T-216")
@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (chat_request(TOOLS, tool_choice=REQUIRED, grammar=JsonObject()), "tool_choice"),
        (chat_request((), tool_choice=REQUIRED), "tool_choice"),
        (chat_request(TOOLS, tool_choice=ToolChoice("required", "nope")), "tool_choice"),
    ],
)
def test_what_cannot_be_forced_is_refused(request_: Any, param: str) -> None:
    """A grammar beside it, nothing to call, a function that was not offered."""
    with pytest.raises(RequestError) as caught:
        chat_of(QwenFormat()).events("x", request_)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_a_model_that_makes_no_calls_refuses() -> None:
    with pytest.raises(RequestError, match="no tool calls") as caught:
        chat_of(PlainFormat()).events("x", chat_request(TOOLS, tool_choice=REQUIRED))
    assert caught.value.param == "tool_choice"

"""What parsers of every format promise while a reply is written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.chat.replies.source import MAX_BLANKS
from tensorfold.contracts.chat import CallPiece, TextPiece, ThinkingPiece
from tensorfold.ir import TokenInfo, Tool, ToolChoice
from tensorfold.testing.golden import FORMATS, TOOLS
from tensorfold.testing.golden.tagged import PARIS, ROME
from tensorfold.testing.golden.texts import OPEN
from tensorfold.testing.parsed_replies import Parsed, parsed, request_with

QWEN = FORMATS["qwen"]
REQUEST = request_with(TOOLS)
LONGEST_MARK = 20

MARKS = {
    "qwen": "<think>|</think>|<tool_call>|</tool_call>|<function=now>|<function=nope>|</function>|<parameter=a>|"
    '</parameter>|{|}|"name"|:|"now"|,|"arguments"|\n| |x|<|>',
    "glm": "<think>|</think>|<tool_call>|</tool_call>|now|nope|<arg_key>|</arg_key>|<arg_value>|</arg_value>|\n| |x|<|>",
    "gemma": '<|channel>thought|<channel|>|<|tool_call>|<tool_call|>|call:now{|call:nope{|a:|<|"|>|}|{|[|]|,|1|\n|x|<|>',
}


def pieces_of(text: str, size: int = 1, **fields: Any) -> list[Any]:
    return parsed(
        QWEN, request_with(TOOLS, **fields), "", [text[at : at + size] for at in range(0, len(text), size)]
    ).pieces


@pytest.mark.parametrize("name", MARKS)
def test_any_jumble_of_marks_is_the_same_however_it_is_cut(name: str) -> None:
    """Nothing raises, the pieces joined do not depend on the cuts, and what is no call is text, markup and all."""

    @settings(max_examples=300)
    @given(st.lists(st.sampled_from(MARKS[name].split("|") if name != "gemma" else _gemma()), max_size=30), st.data())
    def check(parts: list[str], data: st.DataObject) -> None:
        text = "".join(parts)
        places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
        cut = [text[begin:end] for begin, end in pairwise([0, *places, len(text)])]
        prompt = data.draw(st.sampled_from(["", "<think>\n"]))
        whole, again = (parsed(FORMATS[name], REQUEST, prompt, each) for each in ([text], cut))
        single = parsed(FORMATS[name], REQUEST, prompt, list(text))
        assert _joined(whole) == _joined(again) == _joined(single)
        if not whole.calls:
            assert _bare(name, whole.thinking + whole.content) == _bare(name, text), "what is no call is all there"
        for name_, arguments in whole.calls[: len(whole.calls) - whole.broken]:
            assert name_ == "now"
            if not whole.broken:
                json.loads(arguments)

    check()


@pytest.mark.requirement("T-114")
@pytest.mark.parametrize("name", MARKS)
def test_the_tokens_of_a_text_are_those_that_spell_it(name: str) -> None:
    """Log-probabilities go with the tokens that spell a text, whatever calls and white space stand between."""
    parts = [*(MARKS[name].split("|") if name != "gemma" else _gemma()), " ", "\n", "word", PARIS, PARIS]

    @settings(max_examples=300)
    @given(st.lists(st.sampled_from(parts), max_size=30), st.sampled_from(["", "<think>\n"]))
    def check(parts: list[str], prompt: str) -> None:
        parser = FORMATS[name].parser(REQUEST, prompt)
        pieces = [
            piece
            for number, character in enumerate("".join(parts))
            for piece in parser.feed(character, (TokenInfo(number, character.encode(), -1.0),))
        ]
        for piece in (*pieces, *parser.finish()):
            if isinstance(piece, TextPiece | ThinkingPiece):
                assert b"".join(token.data for token in piece.tokens).decode() == piece.text

    check()


def _gemma() -> list[str]:
    # The marks themselves hold the separator.
    return [
        "<|channel>thought",
        "<channel|>",
        "<|tool_call>",
        "<tool_call|>",
        "call:now{",
        "call:nope{",
        '<|"|>',
        *"}{[],1\nx<>a:",
    ]


def _bare(name: str, text: str) -> str:
    """The characters of a text, without those of the reasoning's marks and white space, which belong to the notation."""
    marks = ("<|channel>thought", "<channel|>") if name == "gemma" else ("<think>", "</think>")
    # Reasoning that is opened again stands elsewhere than in the text.
    return "".join(sorted(re.sub("|".join(map(re.escape, marks)), "", text).replace(" ", "").replace("\n", "")))


def _joined(found: Parsed) -> Any:
    return found.content, found.thinking, found.calls, found.broken


@pytest.mark.requirement("T-181")
@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("opening", ["", "<think>\n"])
@pytest.mark.parametrize(
    "block",
    [
        '<tool_call>\n{"name": "',
        '<tool_call>\n{"name" "now"}\n</tool_call>',
        '<tool_call>{"name": "now" x "arguments": {}}</tool_call>',
        '<tool_call>{"name": "now", "arguments" {}}</tool_call>',
        "<tool_call>{now}</tool_call>",
        '<tool_call>{"name": "now", "arguments": []}</tool_call>',
        '<tool_call>{"arguments": {}, "name": "nope"}</tool_call>',
        "<tool_call>\n<function now>\n</tool_call>",
        "<tool_call>\n<function=now>\nx</tool_call>",
    ],
)
def test_a_block_that_is_no_call_keeps_all_of_its_text(block: str, opening: str, size: int) -> None:
    """A block that is no call is content from its opening mark on, wherever it leaves the notation."""
    text = f"Look: {block}"
    found = parsed(QWEN, REQUEST, opening, [text[at : at + size] for at in range(0, len(text), size)])
    assert _joined(found) == (("", text, [], False) if opening else (text, "", [], False))


@settings(max_examples=100)
@given(st.text(max_size=200))
def test_text_without_marks_is_text(text: str) -> None:
    """Every character of a reply without markup is content."""
    if not any(mark in text for mark in ("<think>", "<tool_call>")):
        assert _joined(parsed(QWEN, REQUEST, "", list(text))) == (text, "", [], False)


def test_nothing_of_a_mark_is_ever_sent() -> None:
    """A marker that comes in pieces is held back from its first character on."""
    parser = QWEN.parser(REQUEST, "")
    content = ""
    for character in f"Checking.\n{PARIS}":
        content += "".join(piece.text for piece in parser.feed(character, ()) if isinstance(piece, TextPiece))
        assert "Checking.".startswith(content)
    assert not parser.finish()


@pytest.mark.requirement("T-189")
def test_streamed_reasoning_never_has_a_calls_markup() -> None:
    """Held from the opener on, until the block closes or the reply ends."""
    parser = QWEN.parser(REQUEST, OPEN)
    thinking = ""
    for character in f"I need it.\n{PARIS}\n{ROME}":
        thinking += "".join(piece.text for piece in parser.feed(character, ()) if isinstance(piece, ThinkingPiece))
        assert "I need it.".startswith(thinking)
        assert parser.thinking
    assert [piece.name for piece in parser.finish() if isinstance(piece, CallPiece) and piece.name] == [
        "get_weather"
    ] * 2


def test_little_is_held_back() -> None:
    """What was fed and not given is white space, or may yet be a mark."""
    parser = QWEN.parser(REQUEST, "")
    fed = given = 0
    for part in ["word ", "<", "tool", " \n" * 400, "<tool_call", "> no", "<b>", "x" * 5000] * 20:
        fed += len(part)
        given += sum(len(piece.text) for piece in parser.feed(part, ()) if isinstance(piece, TextPiece))
        assert fed - given <= MAX_BLANKS + LONGEST_MARK


@pytest.mark.requirement("T-185")
def test_a_call_is_its_name_first_and_then_its_arguments_as_they_are_written() -> None:
    """A long text argument comes in many pieces, long before its end."""
    code = 'int main() { printf("a\\n\\t<b>\\"%s\\"</b>"); }\n' * 50
    head, tail = (
        "<tool_call>\n<function=write_file>\n<parameter=content>\n",
        "\n</parameter>\n</function>\n</tool_call>",
    )
    parser = QWEN.parser(REQUEST, "")
    pieces = [piece for at in range(0, len(head + code), 4) for piece in parser.feed((head + code)[at : at + 4], ())]
    first, *rest = pieces
    assert first == CallPiece(0, "write_file", "")
    assert len(rest) >= 10
    assert all(isinstance(piece, CallPiece) and piece.name is None and piece.index == 0 for piece in rest)
    rest += [*parser.feed(tail, ()), *parser.finish()]
    joined = "".join(piece.arguments for piece in rest if isinstance(piece, CallPiece))
    assert json.loads(joined) == {"content": code}


@pytest.mark.requirement("T-186")
def test_a_call_that_cannot_be_followed_comes_whole() -> None:
    """Arguments that stand before the name."""
    text = '<tool_call>{"arguments": {"city": "Paris"}, "name": "get_weather"}</tool_call>'
    assert pieces_of(text) == [CallPiece(0, "get_weather", ""), CallPiece(0, None, '{"city": "Paris"}')]


@pytest.mark.parametrize("argument", ['{"a": "\\ud800"}', '{"a": 1e999, "b": 1.10}', '{"a": "北\\n", "b": [1e5, {}]}'])
@pytest.mark.parametrize("order", ['{{"name": "ping", "arguments": {}}}', '{{"arguments": {}, "name": "ping"}}'])
@pytest.mark.parametrize("spelled", [str, json.dumps])
def test_arguments_stand_as_the_model_wrote_them(argument: str, order: str, spelled: Callable[[str], str]) -> None:
    """In any order of the call, and where they are a text of JSON: no number changes, and half of a pair of surrogates
    stays the escape that JSON can hold."""
    text = f"<tool_call>{order.format(spelled(argument))}</tool_call>"
    assert parsed(QWEN, request_with([Tool("ping")]), "", [text]).calls == [("ping", argument)]


def test_letters_stay_as_they_are_written() -> None:
    """No escapes for what JSON can hold as it is."""
    text = PARIS.replace("Paris", "北京 🌧")
    assert parsed(QWEN, REQUEST, "", [text]).calls == [("get_weather", '{"city": "北京 🌧"}')]


@pytest.mark.requirement("T-089", "T-182", "T-183")
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_single_call_is_the_first_whole_one(size: int) -> None:
    """With parallel calls off, text streams, one call comes when it is whole, and no other one."""
    single = ToolChoice(parallel=False)
    broken = '<tool_call>{"name": "get_weather", "arguments": {"city": Oslo}}</tool_call>'
    pieces = pieces_of(f"Sure.\n{broken}\n{PARIS}\n{ROME}\nDone.", size, choice=single)
    texts = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
    assert texts.split() == ["Sure.", "Done."]
    assert [piece for piece in pieces if isinstance(piece, CallPiece)] == [
        CallPiece(0, "get_weather", ""),
        CallPiece(0, None, '{"city": "Paris"}'),
    ]
    assert isinstance(pieces[0], TextPiece), "text does not wait for calls"


def test_a_single_call_that_is_cut_is_given_as_far_as_it_went() -> None:
    """There is no other one, and what was written is not lost."""
    pieces = pieces_of(PARIS[:60], choice=ToolChoice(parallel=False))
    assert [piece.name for piece in pieces] == ["get_weather", None, None]
    assert pieces[-1].broken


@pytest.mark.requirement("T-087", "T-179", "T-180")
@pytest.mark.parametrize("text", [PARIS, '{"name": "get_weather", "arguments": {}}', '{"answer": 4}', "Hello."])
@pytest.mark.parametrize("name", FORMATS)
def test_without_tools_a_reply_has_no_calls(name: str, text: str) -> None:
    """Nothing was offered, or nothing may be called: all of it is content."""
    for request in (request_with(()), request_with(TOOLS, choice=ToolChoice("none"))):
        assert _joined(parsed(FORMATS[name], request, "", [text])) == (text, "", [], False)


def test_with_a_named_function_no_other_one_is_called() -> None:
    """The others were not offered."""
    request = request_with(TOOLS, choice=ToolChoice("required", "now"))
    assert parsed(QWEN, request, "", [PARIS]).calls == []
    assert parsed(QWEN, request, "", [PARIS]).content == PARIS


def test_a_tool_without_a_schema_takes_any_arguments_as_texts() -> None:
    """There is no type to go by."""
    text = "<tool_call>\n<function=ping>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>"
    assert parsed(QWEN, request_with([Tool("ping")]), "", [text]).arguments == [("ping", {"n": "3"})]


def test_tokens_go_with_the_text_that_they_begin_in() -> None:
    """Tokens of marks, and of white space that is left out, go with nothing."""
    texts = ["<think>", "\n", "why", "\n", "</think>", "\n\n", "It", " is", " ", "<tool_call>", " no", "."]
    parser = QWEN.parser(REQUEST, "")
    found = Parsed()
    for number, text in enumerate(texts):
        for piece in parser.feed(text, (TokenInfo(number, text.encode(), -1.0),)):
            found.add(piece)
    for piece in parser.finish():
        found.add(piece)
    assert [token.id for piece in found.pieces if isinstance(piece, ThinkingPiece) for token in piece.tokens] == [2]
    tokens = [token for piece in found.pieces if isinstance(piece, TextPiece) for token in piece.tokens]
    assert b"".join(token.data for token in tokens).decode() == found.content == "It is <tool_call> no."


def test_characters_of_several_tokens_keep_the_tokens_in_step() -> None:
    """A token may be part of a character."""
    parser = QWEN.parser(REQUEST, "")
    first, second, third = (TokenInfo(n, data, 0.0) for n, data in enumerate([b"\xf0\x9f", b"\x8c\xa7", b"<b>"]))
    assert parser.feed("", (first,)) == []
    assert parser.feed("🌧", (second,)) == [TextPiece("🌧", (first, second))]
    assert parser.feed("<b>", (third,)) == [TextPiece("<b>", (third,))]


@pytest.mark.parametrize("name", ["qwen", "glm", "nemotron", "hermes"])
def test_thinking_tells_whether_the_text_so_far_ends_within_the_reasoning(name: str) -> None:
    """From the opening mark to the closing one."""
    parser = FORMATS[name].parser(REQUEST, "")
    states = [(parser.feed(text, ()), parser.thinking)[1] for text in ("<thi", "nk>", "why", "</think", ">", "yes")]
    assert states == [False, True, True, True, False, False]
    assert FORMATS[name].parser(REQUEST, OPEN).thinking

"""What a model writes, in every format: parsed in time that grows with its length alone, and nothing raises."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tensorfold.testing.golden import FORMATS, TOOLS
from tensorfold.testing.parsed_replies import parsed, request_with

from .bounds import fuzzed, within_a_second

REQUEST = request_with(TOOLS)
EVERY = pytest.mark.parametrize("name", FORMATS)
LENGTH = 60_000


@EVERY
@fuzzed
@given(parts=some.lists(some.text(max_size=12), max_size=12))
def test_text_of_any_kind(name: str, parts: list[str]) -> None:
    with within_a_second():
        parsed(FORMATS[name], REQUEST, "", parts)


HOSTILE = {
    "openings": "<",
    "marks that begin": "<tool_cal",
    "calls that begin": "<tool_call>",
    "thoughts that begin": "<think>",
    "brackets": "<tool_call>{" + '"a":[' * 20,
    "braces": "{",
    "quotes": '"',
    "backslashes": "\\",
    "escapes": '<tool_call>{"name": "now", "arguments": {"a": "' + "\\u0041" * 50,
    "pairs": "<arg_key>a</arg_key><arg_value>",
    "channels": "<|channel>thought",
    "gemma calls": '<|tool_call>call:now{a:<|"|>x',
    "blanks": " ",
    "lines": "\n",
    "closings": "</think></tool_call></function></parameter>",
    "parameters": "<tool_call><function=now><parameter=a>x",
}


@EVERY
@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("size", [3, LENGTH])
def test_a_long_reply_takes_no_longer_than_its_length(name: str, kind: str, size: int) -> None:
    """The same over and over, in small pieces as a model writes it, and at once."""
    text = (HOSTILE[kind] * LENGTH)[:LENGTH]
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    with within_a_second(2.0):
        parsed(FORMATS[name], REQUEST, "", parts)


@EVERY
def test_one_call_with_long_arguments(name: str) -> None:
    """A file that is written by a call, character by character."""
    opening: Any = {"gemma": '<|tool_call>call:now{a:<|"|>'}.get(
        name, '<tool_call>\n{"name": "now", "arguments": {"a": "'
    )
    with within_a_second(2.0):
        parsed(FORMATS[name], REQUEST, "", [opening, *("x" for _ in range(LENGTH))])

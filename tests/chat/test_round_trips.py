"""What a template writes of a call is read as that call again, whatever its arguments, and however the text is cut."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.chat.formats import GemmaFormat, GlmFormat, HermesFormat, NemotronFormat, QwenFormat
from tensorfold.chat.messages import template_messages, template_tools
from tensorfold.chat.template import ChatTemplate, Conversation
from tensorfold.contracts.chat import CallMarks
from tensorfold.ir import JSON, Message, Text, Tool, ToolCall
from tensorfold.testing.parsed_replies import parsed, request_with

Vendor = Callable[[str], str]

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
PLAIN = st.text(st.sampled_from('abc <>/{}[]"\\:,\n\t=1é🌧'), max_size=30)
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
NUMBERS = st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | PLAIN | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
CALLS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=3)
"""The arguments of the calls of one reply."""
SIZES = st.integers(1, 30)

XML_LIMIT = re.compile(r"</parameter>\s*(<parameter=|</function>|</tool_call>)")
PAIR_LIMIT = re.compile(r"</arg_value>\s*(<arg_key>|</tool_call>)")
GEMMA_LIMIT = re.compile(r'<\|"\|>')
"""Texts that a notation cannot carry: they read exactly as the end of the value."""


def type_of(value: JSON) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"


def offered(calls: list[dict[str, JSON]]) -> list[Tool]:
    """One function for each call, with the types that its arguments have."""
    return [
        Tool(
            f"f{number}",
            "A function.",
            {
                "type": "object",
                "properties": {key: {"type": type_of(value), "description": "x"} for key, value in call.items()},
            },
        )
        for number, call in enumerate(calls)
    ]


def written(template: ChatTemplate, calls: list[dict[str, JSON]], marks: CallMarks) -> str:
    """What the template writes of an assistant's turn with these calls."""
    turn = tuple(ToolCall(f"c{at}", f"f{at}", json.dumps(call)) for at, call in enumerate(calls))
    messages = template_messages((Message("user", (Text("xqzuser"),)), Message("assistant", turn)))
    text = template.render(Conversation(messages, template_tools(offered(calls)))).text
    text = text[text.index("xqzuser") :]
    return text[text.index(marks.opener) : text.rindex(marks.closer) + len(marks.closer)]


def carried(value: JSON, limit: re.Pattern[str]) -> bool:
    """Whether a value's texts hold nothing that the notation reads otherwise."""
    return limit.search(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) is None


HERMES = """\
{%- for message in messages %}{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{% endfor %}{% endfor %}"""
"""The usual lines of a template that writes calls as JSON."""

CASES = [
    pytest.param(QwenFormat(), "qwen3_8", XML_LIMIT, id="qwen3.8"),
    pytest.param(QwenFormat(), "qwen3_6", XML_LIMIT, id="qwen3.6"),
    pytest.param(QwenFormat(), "qwen3", None, id="qwen3"),
    pytest.param(NemotronFormat(), "nemotron_3_5_lightning", XML_LIMIT, id="nemotron3.5"),
    pytest.param(NemotronFormat(), "nemotron_3_super", XML_LIMIT, id="nemotron3"),
    pytest.param(GlmFormat(), "glm4moe", PAIR_LIMIT, id="glm4.5"),
    pytest.param(GemmaFormat(), "gemma4_v5", GEMMA_LIMIT, id="gemma4"),
    pytest.param(GemmaFormat(), "gemma4_v2", GEMMA_LIMIT, id="gemma4 as released"),
    pytest.param(HermesFormat(), None, None, id="hermes"),
]


@pytest.mark.requirement("T-175", "T-178")
@pytest.mark.parametrize(("format", "name", "limit"), CASES)
def test_arguments_come_back(vendor: Vendor, format: Any, name: str | None, limit: re.Pattern[str] | None) -> None:
    """Any JSON arguments of explicit types, wherever the notation can carry them."""
    template = ChatTemplate(HERMES if name is None else vendor(name), {}, {})

    @settings(max_examples=50)
    @given(CALLS, SIZES)
    def check(calls: list[dict[str, JSON]], size: int) -> None:
        if limit is not None:
            calls = [{key: value for key, value in call.items() if carried(value, limit)} for call in calls]
        text = written(template, calls, format.marks.call)
        for parts in ([text], [text[at : at + size] for at in range(0, len(text), size)]):
            found = parsed(format, request_with(offered(calls)), "", parts)
            assert (found.content, found.thinking, found.broken) == ("", "", False), text
            assert [name for name, _ in found.calls] == [f"f{at}" for at in range(len(calls))]
            for (_, got), sent in zip(found.arguments, calls, strict=True):
                assert same(got, sent), text

    check()


@pytest.mark.parametrize("limit", ["</parameter>\n</function>", "</parameter> <parameter=x>"])
def test_a_value_that_reads_as_its_own_end_is_cut_there(vendor: Vendor, limit: str) -> None:
    """What the XML notation cannot carry: a closing mark with another mark behind it. Alone, either is text."""
    call: dict[str, JSON] = {"a": f"one {limit} two"}
    template = ChatTemplate(vendor("qwen3_8"), {}, {})
    text = written(template, [call], CallMarks("<tool_call>", "</tool_call>"))
    found = parsed(QwenFormat(), request_with(offered([call])), "", [text])
    assert found.arguments != [("f0", call)]
    for part in limit.split():
        call = {"a": f"one {part} two"}
        text = written(template, [call], CallMarks("<tool_call>", "</tool_call>"))
        assert parsed(QwenFormat(), request_with(offered([call])), "", [text]).arguments == [("f0", call)]


def same(left: JSON, right: JSON) -> bool:
    """Equal as JSON: an integer is no boolean."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)

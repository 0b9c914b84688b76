"""Every history that agents send, through every family's real template."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from tensorfold.chat.formats import GemmaFormat, GlmFormat, HermesFormat, NemotronFormat, QwenFormat
from tensorfold.chat.messages import template_messages, template_tools
from tensorfold.chat.prompt import PromptBuilder
from tensorfold.checkpoint.tokenizer import CheckpointTokenizer
from tensorfold.contracts.chat import ChatFormat, ChatTemplates
from tensorfold.errors import InvalidRequest
from tensorfold.ir import Chat, Message, Text, Thinking, Tool, ToolCall, ToolResult
from tensorfold.testing.tiny_tokenizer import TINY_VOCABULARY

Vendor = Callable[[str], str]

TOOLS = (
    Tool("book", "Books.", {"type": "object", "properties": {"city": {"type": "string", "description": "x"}}}),
    Tool("get_time", "Tells.", {"type": "object", "properties": {}}),
)
FORMATS: dict[str, ChatFormat] = {
    "qwen3_8": QwenFormat(),
    "qwen3_6": QwenFormat(),
    "qwen3_5_think": QwenFormat(),
    "nemotron_3_5_lightning": NemotronFormat(),
    "nemotron_3_nano": NemotronFormat(),
    "nemotron_3_super": NemotronFormat(),
    "nemotron_3_ultra": NemotronFormat(),
    "glm4moe": GlmFormat(),
    "gemma4_v5": GemmaFormat(),
    "gemma4_v2": GemmaFormat(),
    "qwen3": HermesFormat(),
    "llama3_1": HermesFormat(),
}


def system(text: str) -> Message:
    return Message("system", (Text(text),))


def user(*texts: str) -> Message:
    return Message("user", tuple(map(Text, texts)))


def said(*parts: Any) -> Message:
    return Message("assistant", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def result(id: str, text: str) -> Message:
    return Message("tool", (ToolResult(id, (Text(text),)),))


BOOK = ToolCall("c1", "book", '{"city": "Paris \\"x\\"\\nline2", "n": 3, "o": {"a": [1.5, true]}}')
TIME = ToolCall("c2", "get_time", "{}")
CUT = ToolCall("c1", "book", '{"city": "Par')
HI, HELLO, SKY = user("hi"), said("hello"), user("sky?")

SITUATIONS: dict[str, tuple[Message, ...]] = {
    "one user": (HI,),
    "a system message": (system("S1"), HI),
    "two system messages": (system("S1"), system("S2"), HI),
    "three, with a developer's": (system("S1"), Message("developer", (Text("D"),)), system("S2"), HI),
    "a developer": (Message("developer", (Text("D"),)), HI),
    "a later system message": (system("S1"), HI, HELLO, system("S2"), SKY),
    "a later developer": (HI, HELLO, Message("developer", (Text("D"),)), SKY),
    "a system message at the end": (HI, HELLO, system("S2")),
    "several turns": (system("S1"), HI, HELLO, SKY),
    "two users": (HI, SKY),
    "two assistants": (HI, HELLO, said("again"), SKY),
    "an empty user": (user(""), HELLO, SKY),
    "an empty system message": (system(""), HI),
    "an empty assistant": (HI, said(), SKY),
    "content parts": (system("S1"), user("one ", "two"), said("a", "b"), SKY),
    "blanks around texts": (system(" S1 "), user("\n hi \n"), said(" hello "), SKY),
    "earlier reasoning": (HI, said(Thinking("R1"), "hello"), SKY),
    "reasoning before a call": (HI, said(Thinking("R1"), BOOK), result("c1", "31C")),
    "a call": (HI, said("ok", BOOK), result("c1", "31C")),
    "a call without text": (HI, said(BOOK), result("c1", "31C"), said("done"), SKY),
    "two calls": (HI, said(BOOK, TIME), result("c1", "31C"), result("c2", "12:00")),
    "results out of order": (HI, said(BOOK, TIME), result("c2", "12:00"), result("c1", "31C")),
    "results without ids": (HI, said(BOOK, TIME), result("", "31C"), result("", "12:00")),
    "a result before its call": (HI, result("c1", "31C"), said("ok"), SKY),
    "a call without a result": (HI, said(BOOK), SKY),
    "arguments that were cut": (HI, said(CUT), result("c1", "no such city"), SKY),
    "two rounds of calls": (HI, said(BOOK), result("c1", "31C"), said(TIME), result("c2", "12:00")),
}
EDITED = {"two system messages", "three, with a developer's", "a developer", "a later developer", "results without ids"}
"""Rendered by our rule, whatever the template would do."""


@pytest.fixture(scope="module")
def builders(vendor: Vendor, tokenizer: CheckpointTokenizer) -> dict[str, PromptBuilder]:
    return {
        name: PromptBuilder(tokenizer, ChatTemplates(vendor(name)), format, vocabulary=TINY_VOCABULARY)
        for name, format in FORMATS.items()
    }


def texts_of(messages: tuple[Message, ...]) -> list[str]:
    """What has to be in the prompt: all texts but empty ones, and what calls and results hold."""
    found: list[str] = []
    for message in messages:
        for part in message.parts:
            match part:
                case Text(text):
                    found.append(text.strip())
                case ToolCall(_, name, arguments):
                    found += [name, "Par"] if "Par" in arguments else [name]
                case ToolResult(_, results):
                    found += [each.text for each in results if isinstance(each, Text)]
                case _:
                    pass
    return [text for text in found if text]


def reference(source: str, chat: Chat, format: ChatFormat) -> str | None:
    """What transformers renders; None: the template raises."""
    kept = any(isinstance(part, Thinking) for message in chat.messages for part in message.parts)
    keeping = {"preserve_thinking": True, "clear_thinking": False, "truncate_history_thinking": False} if kept else {}
    render: Any = render_jinja_template
    try:
        texts, _ = render(
            [template_messages(chat.messages)],
            chat_template=source,
            tools=template_tools(chat.tools),
            add_generation_prompt=True,
            **{**format.template_kwargs(chat), **keeping},
        )
    except Exception:  # noqa: BLE001 - a template may raise anything
        return None
    return str(texts[0])


@pytest.mark.requirement("T-085", "T-086", "T-171", "T-172", "T-234")
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("name", FORMATS)
def test_a_history_renders(vendor: Vendor, builders: dict[str, PromptBuilder], name: str, situation: str) -> None:
    """As transformers renders it, where it does; else by our rule, with every text in it."""
    messages = SITUATIONS[situation]
    before = copy.deepcopy(messages)
    chat = Chat(messages, tools=TOOLS)
    format = FORMATS[name]
    text = builders[name].prepare(chat).text or ""
    assert messages == before
    expected = reference(format.amend(vendor(name)), chat, format)  # type: ignore[attr-defined]
    whole = expected is not None and all(each in expected for each in texts_of(messages))
    if situation not in EDITED and whole:
        assert text == expected
    for each in texts_of(messages):
        assert each in text
    assert "None" not in text.replace('{"type"', "")


def test_a_conversation_without_a_user_is_refused_in_the_templates_own_words(
    builders: dict[str, PromptBuilder],
) -> None:
    """Some ask for one; the others render."""
    with pytest.raises(InvalidRequest, match="No user query"):
        builders["qwen3_8"].prepare(Chat((system("S1"),)))
    assert "S1" in (builders["gemma4_v5"].prepare(Chat((system("S1"),))).text or "")

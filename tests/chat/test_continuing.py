"""A last message is continued, in its reasoning or in its text, through every family's real template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from tensorfold.chat.continuing import continued_part
from tensorfold.chat.formats import GemmaFormat, GlmFormat, NemotronFormat, QwenFormat
from tensorfold.chat.prompt import PromptBuilder
from tensorfold.checkpoint.tokenizer import CheckpointTokenizer
from tensorfold.contracts.chat import ChatTemplates
from tensorfold.errors import InvalidRequest
from tensorfold.ir import Chat, Message, Part, Request, Text, Thinking, ToolCall
from tensorfold.testing.tiny_tokenizer import TINY_VOCABULARY

Vendor = Callable[[str], str]

FORMATS: dict[str, Any] = {
    "qwen3_8": QwenFormat(),
    "nemotron_3_5_lightning": NemotronFormat(),
    "glm4moe": GlmFormat(),
    "gemma4_v5": GemmaFormat(),
}
ENDS = {
    "qwen3_8": ("<think>\nR1", "<think>\nR1\n</think>\n\n"),
    "nemotron_3_5_lightning": ("<think>\nR1", "<think>\nR1</think>"),
    "glm4moe": ("<think>R1", "<think>R1</think>\n"),
    "gemma4_v5": ("<|channel>thought\nR1", "<|channel>thought\nR1\n<channel|>"),
}
"""A prompt that ends within the reasoning, and one that ends behind it."""


@pytest.fixture(scope="module")
def builders(vendor: Vendor, tokenizer: CheckpointTokenizer) -> dict[str, PromptBuilder]:
    return {
        name: PromptBuilder(tokenizer, ChatTemplates(vendor(name)), format, vocabulary=TINY_VOCABULARY)
        for name, format in FORMATS.items()
    }


def chat(*parts: Part, part: Literal["thinking", "text"] | None = None) -> Chat:
    messages = (Message("user", (Text("q"),)), Message("assistant", parts))
    return Chat(messages, continue_final_message=True, continued_part=part)


REASONING, ANSWER = Thinking("R1"), Text("The answer")


@pytest.mark.requirement("Y-036", "Y-038", "Y-039", "Y-041")
@pytest.mark.parametrize("name", FORMATS)
def test_a_message_is_continued_where_it_ends(builders: dict[str, PromptBuilder], name: str) -> None:
    """Its reasoning when that is asked for, or when it has no text; its text, also an empty one behind reasoning."""

    def prompt(chat: Chat) -> str:
        return builders[name].prepare(chat).text or ""

    within, behind = ENDS[name]
    assert prompt(chat(REASONING)).endswith(within)
    assert prompt(chat(REASONING, part="thinking")).endswith(within)
    assert prompt(chat(REASONING, ANSWER, part="thinking")).endswith(within)
    assert prompt(chat(REASONING, part="text")).endswith(behind)
    for part in (None, "text"):
        assert prompt(chat(REASONING, ANSWER, part=part)).endswith(behind + "The answer")
    assert prompt(chat(ANSWER)).endswith("The answer")
    assert prompt(chat(Thinking("R1 \n"), part="thinking")).rstrip().endswith(within)


@pytest.mark.requirement("Y-037")
@pytest.mark.parametrize("name", FORMATS)
def test_the_reply_to_a_continued_message_is_the_new_text_alone(name: str) -> None:
    """It begins in the part that is continued, and every blank of it counts."""
    end = FORMATS[name].marks.thinking.end

    def reply(chat: Chat, text: str) -> list[tuple[str, str]]:
        parser = FORMATS[name].parser(Request(id="r", prompt=chat), "")
        return [(type(piece).__name__, piece.text) for piece in [*parser.feed(text, ()), *parser.finish()]]

    assert reply(chat(REASONING), f"\n and then\n{end}\n\nYes") == [
        ("ThinkingPiece", "\n and then"),
        ("TextPiece", "Yes"),
    ]
    assert reply(chat(ANSWER), "\n is 4") == [("TextPiece", "\n is 4")]
    assert reply(chat(REASONING, part="text"), "\n4") == [("TextPiece", "\n4")]


@pytest.mark.requirement("Y-043")
def test_a_message_with_calls_cannot_be_continued() -> None:
    """Nor can a user's."""
    user = Chat((Message("user", (Text("q"),)),), continue_final_message=True)
    for odd in (chat(Text("a"), ToolCall("c", "f", "{}")), user):
        with pytest.raises(InvalidRequest, match="can be continued") as caught:
            continued_part(odd)
        assert (caught.value.status, caught.value.param) == (400, "messages")


def test_without_a_generation_prompt_the_conversation_ends_with_its_last_message(
    builders: dict[str, PromptBuilder],
) -> None:
    shown = Chat((Message("user", (Text("q"),)),), add_generation_prompt=False)
    assert (builders["nemotron_3_5_lightning"].prepare(shown).text or "").endswith("q<|im_end|>\n")

"""What a template writes around a call's name, told from its own rendering of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tensorfold.chat.formats import GemmaFormat, GlmFormat, HermesFormat, NemotronFormat, QwenFormat
from tensorfold.chat.framing import frame_of
from tensorfold.chat.plain import PlainFormat
from tensorfold.chat.prompt import PromptBuilder
from tensorfold.chat.template import ChatTemplate
from tensorfold.checkpoint.tokenizer import CheckpointTokenizer
from tensorfold.contracts.chat import CallFrame, ChatTemplates
from tensorfold.ir import Tool
from tensorfold.testing.parsed_replies import parsed, request_with
from tensorfold.testing.tiny_tokenizer import CHAT_TEMPLATE, TINY_VOCABULARY

XML = CallFrame("<tool_call>\n<function=", ">\n<parameter=", ">\n</function>\n</tool_call>")
JSON = CallFrame('<tool_call>\n{"name": "', '", "arguments": {"', '", "arguments": {}}\n</tool_call>')
PAIRS = CallFrame("<tool_call>", "<arg_key>", "</tool_call>")
GEMMA = CallFrame("<|tool_call>call:", "{", "{}<tool_call|>")


@pytest.mark.requirement("T-194")
@pytest.mark.parametrize(
    ("name", "format", "frame"),
    [
        ("qwen3_8", QwenFormat(), XML),
        ("qwen3_6", QwenFormat(), XML),
        ("nemotron_3_5_lightning", NemotronFormat(), XML),
        ("nemotron_3_ultra", NemotronFormat(), XML),
        ("qwen3", HermesFormat(), JSON),
        ("qwen2_5", HermesFormat(), JSON),
        ("glm4moe", GlmFormat(), None),
        ("gemma4_v5", GemmaFormat(), GEMMA),
        ("gemma4_v2", GemmaFormat(), GEMMA),
        ("llama3_1", HermesFormat(), None),
    ],
)
def test_a_frame_is_the_templates_own(vendor: Callable[[str], str], name: str, format: Any, frame: Any) -> None:
    """A call that is framed so is read as a call."""
    found = frame_of(ChatTemplate(vendor(name), {}, {}), format.marks.call)
    if name == "glm4moe":
        # On lines of their own, as that model writes.
        assert found == CallFrame("<tool_call>", "\n<arg_key>", "\n</tool_call>")
    else:
        assert found == frame
    if found is not None:
        texts = [f"{found.before}now{found.nothing}"]
        assert parsed(format, request_with([Tool("now")]), "", texts).arguments == [("now", {})]


def test_a_template_without_calls_leaves_it_to_the_format(tokenizer: CheckpointTokenizer) -> None:
    """The tiny template writes calls between no such marks."""

    def frame(format: Any, template: str | None = CHAT_TEMPLATE) -> CallFrame | None:
        return PromptBuilder(tokenizer, ChatTemplates(template), format, vocabulary=TINY_VOCABULARY).call_frame

    assert frame(HermesFormat()) == JSON
    assert frame(QwenFormat()) == XML
    assert frame(GlmFormat()) == PAIRS
    assert frame(PlainFormat()) is None
    assert frame(QwenFormat(), None) is None

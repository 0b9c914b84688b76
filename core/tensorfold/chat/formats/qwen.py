"""Qwen3.5 and later."""

from __future__ import annotations

from tensorfold.chat.formats.base import MarkupFormat
from tensorfold.chat.replies.markup import Markup
from tensorfold.chat.replies.notations import TaggedCalls
from tensorfold.contracts.chat import ThinkingMarks

__all__ = ["QwenFormat"]


class QwenFormat(MarkupFormat):
    """Reasoning in `<think>`, which the prompt opens; calls in `<tool_call>`, written in XML.

    Earlier models of the family write their calls in JSON between the same marks: both are read.
    """

    def __init__(self) -> None:
        super().__init__(Markup(reasoning=ThinkingMarks(), calls=TaggedCalls(written="xml")))

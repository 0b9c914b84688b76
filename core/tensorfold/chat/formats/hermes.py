"""Checkpoints of no format of their own: what their template shows is what their replies have."""

from __future__ import annotations

from tensorfold.chat.formats.base import MarkupFormat
from tensorfold.chat.replies.markup import Markup
from tensorfold.chat.replies.notations import BareCalls, TaggedCalls
from tensorfold.contracts.chat import ThinkingMarks

__all__ = ["HermesFormat"]


class HermesFormat(MarkupFormat):
    """Calls as JSON between `<tool_call>` marks, or as a whole reply of JSON; reasoning in `<think>`.

    A checkpoint that was never taught either writes neither, and its replies are text.
    """

    def __init__(self) -> None:
        super().__init__(
            Markup(reasoning=ThinkingMarks(), calls=TaggedCalls(), bare_calls=BareCalls(), controls=frozenset())
        )

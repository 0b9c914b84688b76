"""Gemma 4."""

from __future__ import annotations

from tensorfold.chat.formats.base import MarkupFormat
from tensorfold.chat.replies.gemma_calls import GEMMA_QUOTE, GemmaCalls
from tensorfold.chat.replies.markup import Markup
from tensorfold.contracts.chat import ThinkingMarks

__all__ = ["GemmaFormat"]


class GemmaFormat(MarkupFormat):
    """Reasoning in a channel, which the model opens itself and only when it is told to think.

    All marks are control tokens. The turn also ends where a call's result would begin.
    """

    def __init__(self) -> None:
        super().__init__(
            Markup(
                reasoning=ThinkingMarks("<|channel>thought", "<channel|>", again=True),
                calls=GemmaCalls(),
                controls=frozenset({"<|channel>", GEMMA_QUOTE}),
                ends=frozenset({"<|tool_response>", "<turn|>"}),
            ),
            thinks=False,
        )

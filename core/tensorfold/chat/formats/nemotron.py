"""Nemotron 3 and later."""

from __future__ import annotations

from tensorfold.chat.formats.base import MarkupFormat
from tensorfold.chat.replies.markup import Markup
from tensorfold.chat.replies.notations import TaggedCalls
from tensorfold.contracts.chat import ThinkingMarks

__all__ = ["NemotronFormat"]


class NemotronFormat(MarkupFormat):
    """Qwen's marks; reasoning is closed without a blank line, and numbers are written as Python does."""

    def __init__(self) -> None:
        super().__init__(Markup(reasoning=ThinkingMarks(), calls=TaggedCalls(written="xml")))

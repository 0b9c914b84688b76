"""What a format declares of its replies, with the readers of its calls."""

from __future__ import annotations

from dataclasses import dataclass

from tensorfold.chat.replies.calls import CallNotation
from tensorfold.chat.replies.offered import Offered
from tensorfold.chat.replies.source import Mismatch, Source
from tensorfold.contracts.chat import CallMarks, ReplyMarks, ThinkingMarks

__all__ = ["Markup"]


@dataclass(frozen=True, slots=True)
class Markup:
    """All of a format's notations."""

    reasoning: ThinkingMarks | None = None
    calls: CallNotation | None = None
    bare_calls: CallNotation | None = None
    """A notation without a mark of its own: a whole reply that begins with its first character may be a call."""
    controls: frozenset[str] = frozenset()
    """Further control tokens that readers look for."""
    ends: frozenset[str] = frozenset()
    """Control tokens that end a turn, besides those that the checkpoint names."""

    @property
    def marks(self) -> ReplyMarks:
        """What the engine has to know."""
        reasoning = () if self.reasoning is None else (self.reasoning.start, self.reasoning.end)
        calls = None if self.calls is None else CallMarks(self.calls.opener, self.calls.closer)
        spellings = () if calls is None else (calls.opener, calls.closer)
        return ReplyMarks(
            thinking=self.reasoning,
            call=calls,
            frame=None if self.calls is None else self.calls.frame,
            in_text=self.controls.union(reasoning, spellings),
            ends=self.ends,
        )

    def begins_call(self, offered: Offered, text: str) -> bool | None:
        """Whether the text behind a call's opener begins a call; None: it may, once it goes on."""
        if self.calls is None or not offered:
            return False
        source = Source()
        source.feed(text)
        try:
            next(self.calls.header(source, offered))
        except StopIteration:
            return True
        except Mismatch:
            return False
        return None

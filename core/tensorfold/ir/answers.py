"""The whole answer, folded from its events: the only way to a reply that is not streamed, so that the two cannot drift
apart.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tensorfold.errors import GenerationFailed
from tensorfold.ir.events import (
    Event,
    Failed,
    Finished,
    Progress,
    Queued,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ThinkingDelta,
    Timings,
    TokenInfo,
    ToolCallDelta,
    Usage,
)
from tensorfold.ir.messages import ToolCall

__all__ = ["Answer", "ChoiceAnswer", "fold"]


class ChoiceAnswer(msgspec.Struct, frozen=True):
    """One whole reply."""

    text: str
    thinking: str
    calls: tuple[ToolCall, ...]
    reason: StopReason
    detail: str | None = None
    ended_by: str | None = None
    """The end token, stop token or stop string that ended it, as it is spelled."""
    tokens: tuple[TokenInfo, ...] = ()
    """Those of the text."""
    thinking_tokens: tuple[TokenInfo, ...] = ()


class Answer(msgspec.Struct, frozen=True):
    """A whole answer, folded from its events."""

    choices: tuple[ChoiceAnswer, ...]
    usage: Usage
    timings: Timings
    token_sha: tuple[str, ...]


class _Draft:
    """A choice while it is folded."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.thinking: list[str] = []
        self.tokens: list[TokenInfo] = []
        self.thinking_tokens: list[TokenInfo] = []
        self.calls: dict[int, tuple[str, str, list[str]]] = {}
        self.stopped: Stopped | None = None

    def call(self, delta: ToolCallDelta) -> None:
        _, _, arguments = self.calls.setdefault(delta.index, (delta.id or "", delta.name or "", []))
        arguments.append(delta.arguments)

    def answer(self) -> ChoiceAnswer:
        if self.stopped is None:
            raise GenerationFailed("the engine ended the stream before a choice had stopped")
        return ChoiceAnswer(
            text="".join(self.text),
            thinking="".join(self.thinking),
            calls=tuple(
                ToolCall(id=id, name=name, arguments="".join(arguments))
                for _, (id, name, arguments) in sorted(self.calls.items())
            ),
            reason=self.stopped.reason,
            detail=self.stopped.detail,
            ended_by=self.stopped.ended_by,
            tokens=tuple(self.tokens),
            thinking_tokens=tuple(self.thinking_tokens),
        )


def fold(events: Iterable[Event]) -> Answer:
    """The whole answer that these events spell.

    Raises:
        RequestError: the stream ended with `Failed`, or without an end.
    """
    drafts: dict[int, _Draft] = {}
    for event in events:
        match event:
            case TextDelta(choice, text, tokens):
                draft = drafts.setdefault(choice, _Draft())
                draft.text.append(text)
                draft.tokens.extend(tokens)
            case ThinkingDelta(choice, text, tokens):
                draft = drafts.setdefault(choice, _Draft())
                draft.thinking.append(text)
                draft.thinking_tokens.extend(tokens)
            case ToolCallDelta(choice):
                drafts.setdefault(choice, _Draft()).call(event)
            case Stopped(choice):
                drafts.setdefault(choice, _Draft()).stopped = event
            case Finished(usage, timings, token_sha):
                choices = tuple(draft.answer() for _, draft in sorted(drafts.items()))
                return Answer(choices, usage, timings, token_sha)
            case Failed():
                raise event.error()
            case Queued() | Started() | Progress():
                pass
    raise GenerationFailed("the engine ended the stream without a result")

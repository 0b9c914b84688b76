"""Server-sent events: what the streams of both endpoints have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec
from msgspec import UNSET

from tensorfold.ir import (
    Event,
    Failed,
    Finished,
    Progress,
    Queued,
    Started,
    Stopped,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from tensorfold_dialect_openai.controls import StreamOptions
from tensorfold_dialect_openai.errors import error_body
from tensorfold_dialect_openai.replies import Chunk, FoldBody, Head, ProgressBody, TimingsBody, UsageBody

__all__ = ["KEEP_ALIVE", "EventEncoder"]

KEEP_ALIVE = b": keep-alive\n\n"
_JSON = msgspec.json.Encoder()
_DONE = b"data: [DONE]\n\n"
_FILL = 64
"""An obfuscated event's payload is a multiple of so many bytes."""

C = TypeVar("C")


class EventEncoder(ABC, Generic[C]):
    """Encodes one stream; `C` is the endpoint's choice.

    The finishing event of a choice is held until the next thing is known: the last one carries the usage, unless the
    client wants that in an event of its own.
    """

    def __init__(self, head: Head, options: StreamOptions, *, logprobs: bool = False) -> None:
        """`logprobs`: they were asked for."""
        self.logprobs = logprobs
        self._head = head
        self._options = options
        self._counting = options.counting
        self._plain = not (self._counting or options.include_obfuscation)
        self._held: Stopped | None = None
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._counts: dict[int, int] = {}
        """Tokens so far, by choice."""
        self._chunk: Chunk[C] = self._fresh([])

    @abstractmethod
    def pieces(self, delta: TextDelta | ThinkingDelta | ToolCallDelta) -> Iterable[C]:
        """What a delta adds, one event each."""

    @abstractmethod
    def ending(self, stopped: Stopped) -> Iterable[C]:
        """How a choice ends; the last has the finish reason."""

    @abstractmethod
    def nothing(self) -> C:
        """A choice of which nothing is there yet."""

    def feed(self, event: Event) -> bytes:
        """The bytes that tell of this event."""
        match event:
            case TextDelta() | ThinkingDelta() | ToolCallDelta():
                return self._delta(event)
            case Queued(prompt_tokens):
                self._prompt_tokens = prompt_tokens
                return b""
            case Started(cached_tokens):
                self._cached_tokens = cached_tokens
                return b""
            case Progress():
                return self._progress(event)
            case Stopped():
                earlier, self._held = self._release(), event
                return earlier
            case Finished():
                return self._end(event) + _DONE
            case Failed():
                return self._release() + _framed(_JSON.encode(error_body(event.error()))) + _DONE

    def _delta(self, delta: TextDelta | ThinkingDelta | ToolCallDelta) -> bytes:
        if self._counting:
            # An engine that does not tell is taken to send a delta a token.
            told = self._counts.get(delta.choice, 0) + 1 if delta.count is None else delta.count
            self._counts[delta.choice] = told
        data = b"" if self._held is None else self._release()
        for piece in self.pieces(delta):
            data += self._event([piece])
        return data

    def _release(self, finished: Finished | None = None) -> bytes:
        """The events of the held ending, if any; with the usage when the stream is over."""
        if self._held is None:
            return b""
        *before, last = self.ending(self._held)
        self._held = None
        return b"".join(self._event([choice]) for choice in before) + self._event([last], finished)

    def _end(self, finished: Finished) -> bytes:
        if self._options.include_usage:
            return self._release() + self._event([], finished)
        return self._release(finished)

    def _fresh(self, choices: list[C]) -> Chunk[C]:
        head = self._head
        return Chunk(head.id, head.object, head.created, head.model, head.system_fingerprint, choices)

    def _progress(self, progress: Progress) -> bytes:
        chunk = self._fresh([self.nothing()])
        chunk.prompt_progress = ProgressBody.of(progress)
        return _framed(_JSON.encode(chunk))

    def _event(self, choices: list[C], finished: Finished | None = None) -> bytes:
        if finished is None and self._plain:
            # PERF: one value for all the plain events of a stream; making one takes longer than encoding it.
            self._chunk.choices = choices
            return _framed(_JSON.encode(self._chunk))
        chunk = self._fresh(choices)
        if finished is not None:
            chunk.usage = UsageBody.of(finished.usage)
            if len(finished.token_sha) == 1:
                chunk.timings = TimingsBody.of(finished.usage, finished.timings)
            chunk.tensorfold = FoldBody.of(finished.token_sha, finished.usage, finished.timings)
        elif self._counting:
            chunk.usage = UsageBody.of(Usage(self._prompt_tokens, sum(self._counts.values()), self._cached_tokens))
        payload = _JSON.encode(chunk)
        if self._options.include_obfuscation and choices:
            chunk.obfuscation = ""
            bare = len(_JSON.encode(chunk))
            chunk.obfuscation = "0" * (-bare % _FILL)
            payload = _JSON.encode(chunk)
            chunk.obfuscation = UNSET
        return _framed(payload)


def _framed(payload: bytes) -> bytes:
    return b"data: %b\n\n" % payload

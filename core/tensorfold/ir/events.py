"""What an engine tells of a request, one after the other."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tensorfold.errors import GenerationFailed, RequestError

__all__ = [
    "Alternative",
    "Event",
    "Failed",
    "Finished",
    "Progress",
    "Queued",
    "Started",
    "StopReason",
    "Stopped",
    "TextDelta",
    "ThinkingDelta",
    "Timings",
    "TokenInfo",
    "ToolCallDelta",
    "Usage",
]


class Alternative(msgspec.Struct, frozen=True, gc=False):
    """A token that could have stood there."""

    id: int
    data: bytes
    logprob: float


class TokenInfo(msgspec.Struct, frozen=True):
    """One token of a reply (or of an echoed prompt) with its log-probability."""

    id: int
    data: bytes
    """The token's own bytes, which may be part of a character."""
    logprob: float | None
    """Of the raw distribution at temperature 1, before gates, penalties and filters; None: the first prompt token."""
    alternatives: tuple[Alternative, ...] = ()
    """The likeliest tokens, most likely first."""


class Queued(msgspec.Struct, frozen=True, tag="queued"):
    """All checks and the queue's bound have passed; nothing computed yet. Always the first event."""

    prompt_tokens: int


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The prompt begins to be computed."""

    cached_tokens: int
    """Prompt tokens whose state was kept from earlier requests."""


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """So much of the prompt is computed."""

    processed: int
    total: int
    cached: int
    seconds: float


class TextDelta(msgspec.Struct, frozen=True, tag="text"):
    """More of the answer's text; never part of a character."""

    choice: int
    text: str
    tokens: tuple[TokenInfo, ...] = ()
    """The tokens that this text comes from, when logprobs were asked for."""
    count: int | None = None
    """The choice's tokens up to here, for requests that are counted; None: not told."""


class ThinkingDelta(msgspec.Struct, frozen=True, tag="thinking"):
    """More of the reasoning's text."""

    choice: int
    text: str
    tokens: tuple[TokenInfo, ...] = ()
    count: int | None = None
    """The choice's tokens up to here, for requests that are counted; None: not told."""


class ToolCallDelta(msgspec.Struct, frozen=True, tag="tool_call"):
    """More of a call: the first delta of a call has its id and name, the later ones arguments alone."""

    choice: int
    index: int
    """Which call of the choice, from 0."""
    id: str | None
    name: str | None
    arguments: str
    count: int | None = None
    """The choice's tokens up to here, for requests that are counted; None: not told."""


StopReason: TypeAlias = Literal["end", "stop", "length", "window", "tool_calls", "repetition", "abort"]
"""End of turn; a stop string or stop id; the reply limit; the window is full; calls were made; a loop; cancelled."""


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """A choice has ended. Nothing of this choice follows."""

    choice: int
    reason: StopReason
    detail: str | None = None
    """With `stop`: the stop string that matched."""
    ended_by: str | None = None
    """The end token, stop token or stop string that ended it, as it is spelled; None: nothing in the text."""


class Usage(msgspec.Struct, frozen=True):
    """Tokens counted."""

    prompt_tokens: int
    completion_tokens: int
    """Over all choices, the stopping token included."""
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    drafted_tokens: int = 0
    """Draft tokens that were verified."""
    accepted_tokens: int = 0
    """Of those, the ones kept."""

    @property
    def total_tokens(self) -> int:
        """Prompt and completion."""
        return self.prompt_tokens + self.completion_tokens


class Timings(msgspec.Struct, frozen=True):
    """Where the time went, in seconds."""

    queued: float = 0.0
    prefill: float = 0.0
    """From the first chunk to the first token."""
    decode: float = 0.0
    """From the first token to the end."""


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """All choices have ended. The last event of a stream that went well."""

    usage: Usage
    timings: Timings
    token_sha: tuple[str, ...]
    """For each choice, SHA-256 over its token ids, so that anyone can compare two replies."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The request failed after it was queued. The last event of a stream that did not go well."""

    message: str
    status: int = 500
    error_type: str = "server_error"
    code: str | None = None
    param: str | None = None

    @staticmethod
    def of(error: RequestError) -> Failed:
        """The event that tells of this error."""
        return Failed(error.message, error.status, error.type, error.code, error.param)

    def error(self) -> RequestError:
        """The exception that this event tells of."""
        error = GenerationFailed(self.message, param=self.param, code=self.code)
        error.status, error.type = self.status, self.error_type
        return error


Event: TypeAlias = Queued | Started | Progress | TextDelta | ThinkingDelta | ToolCallDelta | Stopped | Finished | Failed

"""Answers, whole and as lines of a stream."""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod

import msgspec
from msgspec import UNSET, UnsetType

from tensorfold.contracts.dialect import DecodeContext
from tensorfold.ir import (
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
    ToolCall,
    ToolCallDelta,
    Usage,
)
from tensorfold.wire.arguments import arguments_object
from tensorfold.wire.stats import ReplyStats
from tensorfold_dialect_ollama.errors import error_body

__all__ = ["CallBody", "LineEncoder", "Reply", "calls_of", "created_at", "finish"]

_NOTHING = msgspec.Raw(b"{}")


def created_at(context: DecodeContext) -> str:
    """When the request came, as the API writes moments."""
    moment = datetime.datetime.fromtimestamp(context.created, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class CallFunction(msgspec.Struct):
    """A call's function."""

    index: int
    name: str
    arguments: msgspec.Raw
    arguments_text: str | UnsetType = UNSET
    """What the model wrote, when it is no JSON object, as when the limit cut it; `arguments` is empty then."""


class CallBody(msgspec.Struct):
    """A whole call; the API has no pieces of one."""

    id: str
    function: CallFunction


def calls_of(calls: tuple[ToolCall, ...], first: int = 0) -> list[CallBody] | UnsetType:
    """The calls of a reply, numbered from `first`; unset when there are none."""
    return [_call(index, call) for index, call in enumerate(calls, first)] or UNSET


def _call(index: int, call: ToolCall) -> CallBody:
    given = arguments_object(call.arguments)
    if given is None:
        return CallBody(call.id, CallFunction(index, call.name, _NOTHING, call.arguments or UNSET))
    return CallBody(call.id, CallFunction(index, call.name, given))


class FoldBody(msgspec.Struct):
    """What only this server tells."""

    token_sha: str
    """SHA-256 over the reply's token ids."""
    stats: ReplyStats


class Reply(msgspec.Struct, kw_only=True):
    """What both endpoints' answers have; the last nine only at the end. Durations are nanoseconds."""

    model: str
    created_at: str
    done: bool = False
    done_reason: str | UnsetType = UNSET
    total_duration: int | UnsetType = UNSET
    load_duration: int | UnsetType = UNSET
    prompt_eval_count: int | UnsetType = UNSET
    prompt_eval_duration: int | UnsetType = UNSET
    eval_count: int | UnsetType = UNSET
    eval_duration: int | UnsetType = UNSET
    tensorfold: FoldBody | UnsetType = UNSET


def finish(reply: Reply, reason: StopReason, usage: Usage, timings: Timings, sha: str) -> None:
    """Make a reply the last one."""
    reply.done = True
    reply.done_reason = _done_reason(reason)
    reply.total_duration = _nanoseconds(timings.queued + timings.prefill + timings.decode)
    reply.load_duration = 0
    reply.prompt_eval_count = usage.prompt_tokens
    reply.prompt_eval_duration = _nanoseconds(timings.prefill)
    reply.eval_count = usage.completion_tokens
    reply.eval_duration = _nanoseconds(timings.decode)
    reply.tensorfold = FoldBody(sha, ReplyStats.of(usage, timings))


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _done_reason(reason: StopReason) -> str:
    match reason:
        case "end" | "stop" | "tool_calls":
            return "stop"
        case "length" | "window":
            return "length"
        case "repetition" | "abort":
            return reason


class LineEncoder(ABC):
    """Encodes one stream: one JSON object a line. A call is held until it is whole."""

    def __init__(self) -> None:
        self._call: ToolCall | None = None
        self._index = -1
        self._stopped = Stopped(0, "end")

    @abstractmethod
    def line(self, text: str, thinking: str, calls: tuple[ToolCall, ...], first: int = 0) -> Reply:
        """A reply that adds this; `first` is the number of the first call."""

    def feed(self, event: Event) -> bytes:
        """The bytes that tell of this event."""
        match event:
            case Queued() | Started() | Progress():
                return b""
            case TextDelta(_, text):
                return self._flush() + (_line(self.line(text, "", ())) if text else b"")
            case ThinkingDelta(_, text):
                return self._flush() + (_line(self.line("", text, ())) if text else b"")
            case ToolCallDelta():
                return self._more(event)
            case Stopped():
                self._stopped = event
                return self._flush()
            case Finished(usage, timings, sha):
                last = self.line("", "", ())
                finish(last, self._stopped.reason, usage, timings, sha[0])
                return _line(last)
            case Failed():
                return _line(error_body(event.error()))

    def _more(self, delta: ToolCallDelta) -> bytes:
        flushed = b""
        if self._call is None or delta.index != self._index:
            flushed, self._index = self._flush(), delta.index
            self._call = ToolCall(delta.id or "", delta.name or "", "")
        call = self._call
        self._call = ToolCall(call.id, call.name, call.arguments + delta.arguments)
        return flushed

    def _flush(self) -> bytes:
        call, self._call = self._call, None
        return b"" if call is None else _line(self.line("", "", (call,), self._index))


def _line(body: msgspec.Struct) -> bytes:
    return msgspec.json.encode(body) + b"\n"

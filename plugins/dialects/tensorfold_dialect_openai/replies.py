"""The bodies of answers and of stream events, as the SDKs type them; extra keys are tolerated by all of them."""

from __future__ import annotations

import hashlib
from typing import Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from tensorfold.contracts.dialect import DecodeContext
from tensorfold.contracts.engine import ModelInfo
from tensorfold.ir import Answer, Progress, StopReason, Timings, Usage
from tensorfold.wire.stats import ReplyStats
from tensorfold_dialect_openai.logprobs import ChatLogprobs, TextLogprobs

__all__ = [
    "CallDelta",
    "CallFunction",
    "CallMessage",
    "ChatChoice",
    "Chunk",
    "ChunkChoice",
    "Delta",
    "FoldBody",
    "Head",
    "ProgressBody",
    "ReplyMessage",
    "TextChoice",
    "TimingsBody",
    "UsageBody",
    "eos_reason",
    "finish_reason",
    "head_of",
    "whole_answer",
]


class PromptDetails(msgspec.Struct):
    """Of the prompt's tokens."""

    cached_tokens: int


class CompletionDetails(msgspec.Struct):
    """Of the reply's tokens."""

    reasoning_tokens: int
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0
    """Predictions are the client's; drafts of our own stand in `timings`."""


class UsageBody(msgspec.Struct):
    """Tokens counted."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails

    @staticmethod
    def of(usage: Usage) -> UsageBody:
        """The IR's usage in the API's words."""
        return UsageBody(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            total_tokens=usage.total_tokens,
            prompt_tokens_details=PromptDetails(usage.cached_tokens),
            completion_tokens_details=CompletionDetails(usage.reasoning_tokens),
        )


class TimingsBody(msgspec.Struct):
    """Where the time went, in llama.cpp's words: milliseconds, and tokens that were computed."""

    cache_n: int
    prompt_n: int
    """Without those from the cache."""
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    queued_ms: float
    draft_n: int | UnsetType = UNSET
    draft_n_accepted: int | UnsetType = UNSET
    """Both only when drafts were verified."""

    @staticmethod
    def of(usage: Usage, timings: Timings) -> TimingsBody:
        """The IR's timings in the API's words."""
        computed = usage.prompt_tokens - usage.cached_tokens
        drafted = usage.drafted_tokens > 0
        return TimingsBody(
            cache_n=usage.cached_tokens,
            prompt_n=computed,
            prompt_ms=_ms(timings.prefill),
            prompt_per_token_ms=_ms(timings.prefill / max(computed, 1)),
            prompt_per_second=_rate(computed, timings.prefill),
            predicted_n=usage.completion_tokens,
            predicted_ms=_ms(timings.decode),
            predicted_per_token_ms=_ms(timings.decode / max(usage.completion_tokens, 1)),
            predicted_per_second=_rate(usage.completion_tokens, timings.decode),
            queued_ms=_ms(timings.queued),
            draft_n=usage.drafted_tokens if drafted else UNSET,
            draft_n_accepted=usage.accepted_tokens if drafted else UNSET,
        )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _rate(tokens: int, seconds: float) -> float:
    return round(tokens / seconds, 3) if seconds > 0 else 0.0


class FoldBody(msgspec.Struct):
    """What only this server tells."""

    token_sha: str
    """SHA-256 over the first choice's token ids."""
    stats: ReplyStats
    choice_token_sha: tuple[str, ...] | UnsetType = UNSET
    """Over each choice's, when there are several."""

    @staticmethod
    def of(token_sha: tuple[str, ...], usage: Usage, timings: Timings) -> FoldBody:
        """From the IR."""
        return FoldBody(token_sha[0], ReplyStats.of(usage, timings), token_sha if len(token_sha) > 1 else UNSET)


class Head(msgspec.Struct):
    """The keys with which every answer and every event of a stream begins."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str


def head_of(prefix: str, object: str, context: DecodeContext) -> Head:
    """`prefix` is the kind of id (`chatcmpl`)."""
    model = context.model
    return Head(f"{prefix}-{context.request_id}", object, context.created, model.id, _fingerprint(model))


def _fingerprint(model: ModelInfo) -> str:
    """Equal for two servers that run the same model the same way."""
    facts = f"{model.id}|{model.family}|{model.backend}|{model.vocabulary}|{model.parameters}"
    return f"fp_{hashlib.sha256(facts.encode()).hexdigest()[:12]}"


C = TypeVar("C")
"""A choice: of a chat or a completion, whole or a part."""


class Whole(Head, Generic[C]):
    """A whole answer."""

    choices: list[C]
    usage: UsageBody
    timings: TimingsBody | UnsetType
    """Of a single reply; those of several that run at once say little."""
    tensorfold: FoldBody


def whole_answer(head: Head, choices: list[C], answer: Answer) -> bytes:
    """The body of a whole answer."""
    body = Whole(
        head.id,
        head.object,
        head.created,
        head.model,
        head.system_fingerprint,
        choices,
        UsageBody.of(answer.usage),
        TimingsBody.of(answer.usage, answer.timings) if len(choices) == 1 else UNSET,
        FoldBody.of(answer.token_sha, answer.usage, answer.timings),
    )
    return msgspec.json.encode(body)


class ProgressBody(msgspec.Struct):
    """How far the prompt is, in llama.cpp's words."""

    total: int
    cache: int
    processed: int
    """Those from the cache included."""
    time_ms: float

    @staticmethod
    def of(progress: Progress) -> ProgressBody:
        """The IR's progress in the API's words."""
        return ProgressBody(progress.total, progress.cached, progress.processed, _ms(progress.seconds))


class Chunk(Head, Generic[C]):
    """One event of a stream."""

    choices: list[C]
    usage: UsageBody | UnsetType = UNSET
    timings: TimingsBody | UnsetType = UNSET
    tensorfold: FoldBody | UnsetType = UNSET
    prompt_progress: ProgressBody | UnsetType = UNSET
    obfuscation: str | UnsetType = UNSET
    """Filling, without meaning."""


# ---- chat -------------------------------------------------------------------------------------------------


class CallFunction(msgspec.Struct):
    """A call's function; in a stream the name comes once."""

    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class CallMessage(msgspec.Struct):
    """A whole call."""

    id: str
    type: str
    function: CallFunction


class CallDelta(msgspec.Struct):
    """A piece of a call; id and type come once, for clients join what they get."""

    index: int
    function: CallFunction
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class ReplyMessage(msgspec.Struct):
    """A whole reply."""

    role: str
    content: str | None
    refusal: str | None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CallMessage] | UnsetType = UNSET


class ChatChoice(msgspec.Struct):
    """One reply of a whole answer."""

    index: int
    message: ReplyMessage
    finish_reason: str
    logprobs: ChatLogprobs | None = None
    stop_reason: str | UnsetType = UNSET
    """The stop string that matched."""
    eos_reason: str | UnsetType = UNSET
    """In TabbyAPI's words, why a reply ended that has no word in OpenAI's."""


class Delta(msgspec.Struct):
    """What an event adds to a reply."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CallDelta] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct):
    """One reply's part of an event."""

    index: int
    delta: Delta
    finish_reason: str | None = None
    logprobs: ChatLogprobs | None = None
    stop_reason: str | UnsetType = UNSET
    eos_reason: str | UnsetType = UNSET


# ---- completions ------------------------------------------------------------------------------------------


class TextChoice(msgspec.Struct):
    """One reply, or in a stream a part of it."""

    index: int
    text: str
    finish_reason: str | None = None
    logprobs: TextLogprobs | None = None
    stop_reason: str | UnsetType = UNSET
    stop_str: str | UnsetType = UNSET
    """The stop string, or the end or stop token as it is spelled, that ended the reply."""
    eos_reason: str | UnsetType = UNSET


def finish_reason(reason: StopReason) -> str:
    """The API's word; a loop and an abort have none, and are told as what they are."""
    match reason:
        case "end" | "stop":
            return "stop"
        case "length" | "window":
            return "length"
        case "tool_calls" | "repetition" | "abort":
            return reason


def eos_reason(reason: StopReason) -> str | UnsetType:
    """Of a loop."""
    return "loop_detected" if reason == "repetition" else UNSET

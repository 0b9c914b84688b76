"""The bodies of answers, as the SDKs type them; extra keys are tolerated by them."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from tensorfold.contracts.dialect import DecodeContext
from tensorfold.ir import Answer, ChoiceAnswer, StopReason, ToolCall, Usage
from tensorfold.wire.arguments import arguments_object
from tensorfold.wire.stats import ReplyStats

__all__ = [
    "FoldBody",
    "MessageHead",
    "StopWord",
    "TextBlock",
    "ThinkingBlock",
    "ToolUseBlock",
    "UsageBody",
    "head_of",
    "stop_words",
    "whole_message",
]

_NOTHING = msgspec.Raw(b"{}")

StopWord: TypeAlias = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class TextBlock(msgspec.Struct, tag="text"):
    """Answer text."""

    text: str


class ThinkingBlock(msgspec.Struct, tag="thinking"):
    """Reasoning, in plain text."""

    thinking: str
    signature: str = ""
    """Nothing is signed, and nothing is checked when the block comes back."""


class ToolUseBlock(msgspec.Struct, tag="tool_use"):
    """A call."""

    id: str
    name: str
    input: msgspec.Raw = _NOTHING
    partial_json: str | UnsetType = UNSET
    """What the model wrote, when it is no JSON object, as when the limit cut it; `input` is empty then."""


class ThinkingTokens(msgspec.Struct):
    """Of the reply's tokens."""

    thinking_tokens: int


class UsageBody(msgspec.Struct):
    """Tokens counted; those of the cache stand apart from the other input."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: ThinkingTokens

    @staticmethod
    def of(usage: Usage) -> UsageBody:
        """The IR's usage in the API's words."""
        return UsageBody(
            input_tokens=usage.prompt_tokens - usage.cached_tokens,
            cache_creation_input_tokens=0,
            cache_read_input_tokens=usage.cached_tokens,
            output_tokens=usage.completion_tokens,
            output_tokens_details=ThinkingTokens(usage.reasoning_tokens),
        )


class FoldBody(msgspec.Struct):
    """What only this server tells."""

    token_sha: str
    """SHA-256 over the reply's token ids."""
    stats: ReplyStats
    stop_reason: str | UnsetType = UNSET
    """Why the reply ended, where the API has no word for it."""


class MessageHead(msgspec.Struct, tag="message"):
    """What a message begins with."""

    id: str
    role: str
    model: str


class Whole(MessageHead):
    """A whole answer."""

    content: list[TextBlock | ThinkingBlock | ToolUseBlock]
    stop_reason: StopWord
    stop_sequence: str | None
    usage: UsageBody
    tensorfold: FoldBody


def head_of(context: DecodeContext) -> MessageHead:
    """The head of the answer to a request."""
    return MessageHead(f"msg_{context.request_id}", "assistant", context.model.id)


def whole_message(head: MessageHead, answer: Answer) -> bytes:
    """The body of a whole answer."""
    (choice,) = answer.choices
    word, sequence, extra = stop_words(choice.reason, choice.detail)
    fold = FoldBody(answer.token_sha[0], ReplyStats.of(answer.usage, answer.timings), extra)
    body = Whole(head.id, head.role, head.model, _blocks(choice), word, sequence, UsageBody.of(answer.usage), fold)
    return msgspec.json.encode(body)


def _blocks(choice: ChoiceAnswer) -> list[TextBlock | ThinkingBlock | ToolUseBlock]:
    blocks: list[TextBlock | ThinkingBlock | ToolUseBlock] = []
    if choice.thinking:
        blocks.append(ThinkingBlock(choice.thinking))
    if choice.text.strip():  # the API has no blocks of blanks alone, and refuses them when they come back
        blocks.append(TextBlock(choice.text))
    return [*blocks, *map(_tool_use, choice.calls)]


def _tool_use(call: ToolCall) -> ToolUseBlock:
    if not call.arguments.strip():
        return ToolUseBlock(call.id, call.name)
    given = arguments_object(call.arguments)
    if given is None:
        return ToolUseBlock(call.id, call.name, partial_json=call.arguments)
    return ToolUseBlock(call.id, call.name, given)


def stop_words(reason: StopReason, detail: str | None) -> tuple[StopWord, str | None, str | UnsetType]:
    """The API's word, the sequence that matched, and the reason itself where the word does not tell it."""
    match reason:
        case "stop" if detail is not None:
            return "stop_sequence", detail, UNSET
        case "end" | "stop":
            return "end_turn", None, UNSET
        case "length":
            return "max_tokens", None, UNSET
        case "window":
            return "model_context_window_exceeded", None, UNSET
        case "tool_calls":
            return "tool_use", None, UNSET
        case "repetition" | "abort":
            return "end_turn", None, reason

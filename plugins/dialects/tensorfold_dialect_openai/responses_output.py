"""What a response looks like, as the SDKs type it; extra keys are tolerated by them."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from tensorfold.contracts.dialect import DecodeContext
from tensorfold.errors import RequestError
from tensorfold.ir import JSON, ChoiceAnswer, Sampling, Stopped, StopReason, Timings, Usage
from tensorfold_dialect_openai.replies import FoldBody, TimingsBody
from tensorfold_dialect_openai.responses_body import ResponsesBody

__all__ = [
    "CallItem",
    "Item",
    "MessageItem",
    "OutputText",
    "ReasoningItem",
    "ReasoningText",
    "ResponseBody",
    "call_item",
    "ended",
    "failed",
    "items_of",
    "message_item",
    "opening",
    "reasoning_item",
]

Status: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed"]


class ReasoningText(msgspec.Struct, tag="reasoning_text"):
    """The reasoning."""

    text: str


class OutputText(msgspec.Struct, tag="output_text"):
    """The answer."""

    text: str
    annotations: tuple[()] = ()
    logprobs: tuple[()] = ()


class ReasoningItem(msgspec.Struct, tag="reasoning"):
    """Reasoning, in plain text."""

    id: str
    status: Status
    content: list[ReasoningText]
    summary: tuple[()] = ()
    encrypted_content: None = None


class MessageItem(msgspec.Struct, tag="message"):
    """The answer."""

    id: str
    status: Status
    content: list[OutputText]
    role: str = "assistant"


class CallItem(msgspec.Struct, tag="function_call"):
    """A call."""

    id: str
    status: Status
    call_id: str
    name: str
    arguments: str


Item: TypeAlias = ReasoningItem | MessageItem | CallItem


class InputDetails(msgspec.Struct):
    """Of the prompt's tokens."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct):
    """Of the reply's tokens."""

    reasoning_tokens: int


class UsageBody(msgspec.Struct):
    """Tokens counted."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int

    @staticmethod
    def of(usage: Usage) -> UsageBody:
        """The IR's usage in the API's words."""
        return UsageBody(
            input_tokens=usage.prompt_tokens,
            input_tokens_details=InputDetails(usage.cached_tokens),
            output_tokens=usage.completion_tokens,
            output_tokens_details=OutputDetails(usage.reasoning_tokens),
            total_tokens=usage.total_tokens,
        )


class Incomplete(msgspec.Struct):
    """Why a response is not complete."""

    reason: str


class FailureBody(msgspec.Struct):
    """Why it failed."""

    code: str
    message: str


class ToolBody(msgspec.Struct, tag="function"):
    """A tool that was offered."""

    name: str
    description: str | None
    parameters: dict[str, JSON] | None
    strict: bool


class ReasoningBody(msgspec.Struct):
    """What was asked for."""

    effort: str | None
    summary: None = None


class ResponseBody(msgspec.Struct, kw_only=True):
    """A response, at any moment of its life."""

    id: str
    object: str = "response"
    created_at: int
    status: Status
    error: FailureBody | None = None
    incomplete_details: Incomplete | None = None
    instructions: str | None
    max_output_tokens: int | None
    model: str
    output: list[Item]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: ReasoningBody
    store: bool
    temperature: float | None
    text: JSON
    tool_choice: JSON
    tools: list[ToolBody]
    top_p: float | None
    truncation: str = "disabled"
    background: bool = False
    metadata: dict[str, str]
    usage: UsageBody | None = None
    timings: TimingsBody | UnsetType = UNSET
    tensorfold: FoldBody | UnsetType = UNSET


def opening(body: ResponsesBody, sampling: Sampling, context: DecodeContext) -> ResponseBody:
    """The response before anything of it is there."""
    format = None if body.text is None else body.text.format
    tools = [
        ToolBody(tool.name or "", tool.description, tool.parameters, bool(tool.strict)) for tool in body.tools or ()
    ]
    return ResponseBody(
        id=f"resp_{context.request_id}",
        created_at=context.created,
        status="in_progress",
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        model=context.model.id,
        output=[],
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        reasoning=ReasoningBody(body.reasoning.effort if body.reasoning else None),
        store=body.store is not False,
        temperature=sampling.temperature,
        text={"format": {"type": "text"} if format is None else _told(format)},
        tool_choice="auto" if body.tool_choice is None else _told(body.tool_choice),
        tools=tools,
        top_p=sampling.top_p,
        metadata=body.metadata or {},
    )


def _told(given: msgspec.Struct | str) -> JSON:
    """What was asked, without the fields that were left out."""
    if isinstance(given, str):
        return given
    told: dict[str, JSON] = msgspec.to_builtins(given)
    return {key: value for key, value in told.items() if value is not None}


def ended(
    response: ResponseBody, output: list[Item], stopped: Stopped, usage: Usage, timings: Timings, sha: tuple[str, ...]
) -> ResponseBody:
    """The response at its end."""
    reason = _incomplete(stopped.reason)
    return msgspec.structs.replace(
        response,
        status="completed" if reason is None else "incomplete",
        incomplete_details=None if reason is None else Incomplete(reason),
        output=output,
        usage=UsageBody.of(usage),
        timings=TimingsBody.of(usage, timings),
        tensorfold=FoldBody.of(sha, usage, timings),
    )


def failed(response: ResponseBody, output: list[Item], error: RequestError) -> ResponseBody:
    """The response when it could not be finished."""
    code = "rate_limit_exceeded" if error.status == 429 else "server_error"
    return msgspec.structs.replace(response, status="failed", output=output, error=FailureBody(code, error.message))


def _incomplete(reason: StopReason) -> str | None:
    """The API's word; a loop and an abort have none, and are told as what they are."""
    match reason:
        case "end" | "stop" | "tool_calls":
            return None
        case "length" | "window":
            return "max_output_tokens"
        case "repetition" | "abort":
            return reason


def item_status(reason: StopReason) -> Status:
    """Of the item in which a reply ended."""
    return "completed" if _incomplete(reason) is None else "incomplete"


def reasoning_item(response: str, number: int, status: Status, text: str | None) -> ReasoningItem:
    """The `number`-th item of a response; without text one that begins."""
    return ReasoningItem(_id("rs", response, number), status, [] if text is None else [ReasoningText(text)])


def message_item(response: str, number: int, status: Status, text: str | None) -> MessageItem:
    """The `number`-th item of a response; without text one that begins."""
    return MessageItem(_id("msg", response, number), status, [] if text is None else [OutputText(text)])


def call_item(response: str, number: int, status: Status, call: tuple[str, str, str]) -> CallItem:
    """The `number`-th item of a response; `call` is the call's id, name and arguments."""
    return CallItem(_id("fc", response, number), status, *call)


def _id(kind: str, response: str, number: int) -> str:
    return f"{kind}_{response.removeprefix('resp_')}_{number}"


def items_of(response: str, choice: ChoiceAnswer) -> list[Item]:
    """A whole reply's items: reasoning, message, calls. Blanks beside calls are no message."""
    items: list[Item] = []
    if choice.thinking:
        items.append(reasoning_item(response, 0, "completed", choice.thinking))
    if choice.text.strip() or (choice.text and not choice.calls):
        items.append(message_item(response, len(items), "completed", choice.text))
    for call in choice.calls:
        items.append(call_item(response, len(items), "completed", (call.id, call.name, call.arguments)))
    if items:
        items[-1].status = item_status(choice.reason)
    return items

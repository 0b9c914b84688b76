"""A body of Responses, to a request of the IR."""

from __future__ import annotations

import msgspec

from tensorfold.contracts.dialect import DecodeContext
from tensorfold.errors import DecodeError, InvalidRequest, Unsupported
from tensorfold.ir import (
    JSON,
    Chat,
    Grammar,
    JsonObject,
    JsonSchema,
    Message,
    Request,
    Text,
)
from tensorfold.wire import Int64
from tensorfold.wire.chats import read_effort
from tensorfold.wire.grammars import named_grammar
from tensorfold_dialect_openai.controls import ReplyFields, read_limits, read_priority, read_sampling
from tensorfold_dialect_openai.responses_items import WireInput, read_input
from tensorfold_dialect_openai.responses_tools import WireTool, WireToolChoice, read_tool_choice, read_tools

__all__ = ["ResponsesBody", "WireFormat", "build_request", "new_messages"]

MAX_METADATA = 16
"""Pairs."""
MAX_METADATA_KEY, MAX_METADATA_VALUE = 64, 512
"""Characters."""

_INCLUDED = "reasoning.encrypted_content"


class WireReasoning(msgspec.Struct):
    """`reasoning`."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None
    """No summary is written; the reasoning itself is in the answer."""


class WireFormat(msgspec.Struct):
    """What the text must be."""

    type: str
    name: str | None = None
    schema: dict[str, JSON] | bool | None = None
    description: str | None = None
    strict: bool | None = None


class WireText(msgspec.Struct):
    """`text`."""

    format: WireFormat | None = None
    verbosity: str | None = None


class ResponsesBody(ReplyFields, kw_only=True):
    """The fields, with those that chat has beyond OpenAI's; null means left out, everywhere."""

    input: WireInput | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: Int64 | None = None
    reasoning: WireReasoning | None = None
    text: WireText | None = None
    tools: list[WireTool] | None = None
    tool_choice: str | WireToolChoice | None = None
    parallel_tool_calls: bool | None = None
    include: list[str] | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    user: str | None = None
    chat_template_kwargs: dict[str, JSON] | None = None
    template_vars: dict[str, JSON] | None = None
    """Its other name, as in chat."""


def new_messages(body: ResponsesBody) -> tuple[Message, ...]:
    """What this turn adds to the conversation.

    Raises:
        DecodeError, Unsupported: as `read_input`; or there is nothing at all.
    """
    if body.input is None and body.previous_response_id is None:
        raise DecodeError("input is missing", param="input")
    messages = read_input(body.input or [])
    if not messages and body.previous_response_id is None:
        raise DecodeError("input holds no message", param="input")
    return messages


def build_request(
    body: ResponsesBody, earlier: tuple[Message, ...], added: tuple[Message, ...], context: DecodeContext
) -> Request:
    """The equivalent chat completion. `instructions` stand in front of the `earlier` and the `added` messages.

    Raises:
        DecodeError: a field is malformed.
        InvalidRequest: a field is impossible.
        Unsupported: a field asks for what is not served.
    """
    _check(body)
    system = () if body.instructions is None else (Message("system", (Text(body.instructions),)),)
    parallel = body.parallel_tool_calls is not False
    tools, choice = read_tool_choice(body.tool_choice, read_tools(body.tools or []), parallel)
    chat = Chat(
        messages=(*system, *earlier, *added),
        tools=tools,
        template_kwargs={**(body.template_vars or {}), **(body.chat_template_kwargs or {})},
        reasoning_effort=read_effort(body.reasoning.effort if body.reasoning else None, "reasoning.effort"),
    )
    field, grammar = _grammar(body)
    return Request(
        id=context.request_id,
        prompt=chat,
        model=body.model or "",
        sampling=read_sampling(body),
        limits=read_limits(body, body.max_output_tokens),
        grammar=grammar,
        grammar_field=field,
        tool_choice=choice,
        draft=body.draft is not False,
        priority=read_priority(body),
    )


def _check(body: ResponsesBody) -> None:
    for value in body.include or ():
        if value != _INCLUDED:
            raise Unsupported(f"include: {value[:60]!r} is not served, and {_INCLUDED} alone passes", param="include")
    if body.max_output_tokens is not None and body.max_output_tokens < 1:
        raise InvalidRequest("max_output_tokens must be at least 1", param="max_output_tokens")
    if body.text is not None and body.text.verbosity not in (None, "medium"):
        raise Unsupported("text.verbosity is not served here: leave it out, or give medium", param="text.verbosity")
    _check_metadata(body.metadata or {})


def _check_metadata(metadata: dict[str, str]) -> None:
    if len(metadata) > MAX_METADATA:
        raise InvalidRequest(f"metadata has {len(metadata)} pairs, and at most {MAX_METADATA}", param="metadata")
    for key, value in metadata.items():
        if len(key) > MAX_METADATA_KEY or len(value) > MAX_METADATA_VALUE:
            raise InvalidRequest(
                f"metadata: keys have at most {MAX_METADATA_KEY} characters and values {MAX_METADATA_VALUE}",
                param="metadata",
            )


def _grammar(body: ResponsesBody) -> tuple[str, Grammar | None]:
    """What the text has to be, and which field says so: the API's own, or one of those that chat has besides."""
    told, own = named_grammar(body), _format(None if body.text is None else body.text.format)
    if told is not None and own is not None:
        raise InvalidRequest("text.format and another field both bind the reply's form: give one", param="text.format")
    if told is None and own is None:
        return "response_format", None
    return told or ("text.format", own)


def _format(format: WireFormat | None) -> Grammar | None:
    if format is None or format.type == "text":
        return None
    match format.type:
        case "json_object":
            return JsonObject()
        case "json_schema":
            if format.schema is None:
                raise DecodeError("text.format.schema is missing", param="text.format.schema")
            return JsonSchema(format.schema)
        case other:
            raise DecodeError(
                f"text.format.type is {other[:40]!r}, and must be text, json_schema or json_object",
                param="text.format.type",
            )

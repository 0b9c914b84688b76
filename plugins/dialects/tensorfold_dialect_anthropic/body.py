"""A body of the Messages API, to a request of the IR."""

from __future__ import annotations

import msgspec

from tensorfold.errors import DecodeError, InvalidRequest, Unsupported
from tensorfold.ir import JSON, Chat, Grammar, JsonSchema, Limits, Request, Sampling
from tensorfold.wire import Int64, LenientNumber, lenient_float, lenient_int
from tensorfold.wire.chats import offered_tools, read_effort
from tensorfold_dialect_anthropic.blocks import Content, WireMessage, read_conversation
from tensorfold_dialect_anthropic.tools import WireTool, WireToolChoice, read_tool_choice, read_tools

__all__ = ["MessagesBody", "PromptBody", "build_request", "prompt_request"]

MAX_STOPS = 64
"""The most stop sequences."""
MAX_STOP_LENGTH = 4096
"""Characters of one."""


class WireThinking(msgspec.Struct):
    """`thinking`."""

    type: str
    budget_tokens: Int64 | None = None
    display: str | None = None
    """Thinking is always shown."""


class WireFormat(msgspec.Struct):
    """What the reply's text must be."""

    type: str
    schema: dict[str, JSON] | None = None


class WireOutput(msgspec.Struct):
    """`output_config`."""

    effort: str | None = None
    format: WireFormat | None = None
    task_budget: JSON = None


class WireEdit(msgspec.Struct):
    """An edit of the context."""

    type: str
    keep: JSON = None


class WireContext(msgspec.Struct):
    """`context_management`."""

    edits: list[WireEdit] | None = None


class PromptBody(msgspec.Struct):
    """The fields that shape the prompt; null means left out, everywhere."""

    messages: list[WireMessage]
    model: str | None = None
    system: Content | None = None
    tools: list[WireTool] | None = None
    tool_choice: WireToolChoice | None = None
    thinking: WireThinking | None = None
    output_config: WireOutput | None = None
    output_format: WireFormat | None = None
    """The older place of `output_config.format`."""
    context_management: WireContext | None = None
    chat_template_kwargs: dict[str, JSON] | None = None
    """Not Anthropic's: variables for the checkpoint's template."""


class MessagesBody(PromptBody, kw_only=True):
    """A request for a reply. The last five fields are not Anthropic's."""

    max_tokens: Int64 | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: LenientNumber = None
    top_p: LenientNumber = None
    top_k: LenientNumber = None
    min_p: float | None = None
    seed: LenientNumber = None
    ignore_eos: bool | None = None
    draft: bool | None = None
    priority: str | None = None


def prompt_request(body: PromptBody, id: str) -> Request:
    """A request whose prompt is that of the body; it asks for a reply as the server would by default.

    Raises:
        DecodeError, InvalidRequest, Unsupported: as `build_request`.
    """
    if not body.messages:
        raise DecodeError("messages must hold at least one message", param="messages")
    _check_context(body.context_management)
    tools = read_tools(body.tools or [])
    choice = read_tool_choice(body.tool_choice, tools)
    switches, budget = _thinking(body)
    last = body.messages[-1]
    messages = read_conversation(body.system, body.messages)
    chat = Chat(
        messages=messages,
        tools=offered_tools(tools, choice),
        template_kwargs={**switches.variables, **(body.chat_template_kwargs or {})},
        reasoning_effort=switches.effort,
        # A reply goes on from the assistant's own last words.
        continue_final_message=last.role == "assistant" and _is_text(last.content),
    )
    return Request(
        id=id,
        prompt=chat,
        model=body.model or "",
        limits=Limits(thinking_budget=budget),
        grammar=_grammar(body),
        tool_choice=choice,
    )


def build_request(body: MessagesBody, id: str) -> Request:
    """The request for a reply.

    Raises:
        DecodeError: a field is malformed.
        InvalidRequest: a field is impossible.
        Unsupported: a field asks for what is not served.
    """
    if body.priority not in (None, "foreground", "background"):
        raise DecodeError("priority must be background, foreground or null", param="priority")
    request = prompt_request(body, id)
    top_k = lenient_int(body.top_k, "top_k")
    return msgspec.structs.replace(
        request,
        sampling=Sampling(
            temperature=lenient_float(body.temperature, "temperature"),
            top_p=lenient_float(body.top_p, "top_p"),
            top_k=None if top_k is None else max(top_k, 0),
            min_p=body.min_p,
            seed=lenient_int(body.seed, "seed"),
        ),
        limits=Limits(
            max_tokens=body.max_tokens,
            stop=_stops(body.stop_sequences or []),
            ignore_eos=bool(body.ignore_eos),
            thinking_budget=request.limits.thinking_budget,
            # The API demands a limit, so clients send one that is larger than most windows.
            overflow="cut",
        ),
        draft=body.draft is not False,
        priority="background" if body.priority == "background" else "foreground",
    )


class _Switches(msgspec.Struct, frozen=True):
    """How the template hears of thinking."""

    effort: str | None
    variables: dict[str, JSON]


def _thinking(body: PromptBody) -> tuple[_Switches, int | None]:
    """The switches, and the thinking budget."""
    effort = read_effort(body.output_config.effort if body.output_config else None, "output_config.effort")
    match body.thinking:
        case None:
            # Off by default. As an effort it is a wish: a model that cannot but think is still served.
            return _Switches("none", {}), None
        case WireThinking(type="disabled"):
            return _Switches(None, {"enable_thinking": False}), None
        case WireThinking(type="enabled", budget_tokens=None):
            raise DecodeError("thinking.budget_tokens is missing", param="thinking.budget_tokens")
        case WireThinking(type="enabled", budget_tokens=int() as budget) if budget < 1:
            raise InvalidRequest("thinking.budget_tokens must be at least 1", param="thinking.budget_tokens")
        case WireThinking(type="enabled" | "adaptive", budget_tokens=budget):
            return _Switches(effort, {"enable_thinking": True}), budget
        case WireThinking(type=other):
            raise Unsupported(
                f"thinking.type is {other[:40]!r}, and disabled, enabled and adaptive are served", param="thinking.type"
            )


def _is_text(content: Content) -> bool:
    return isinstance(content, str) or all(block.type in ("text", "thinking") for block in content)


def _grammar(body: PromptBody) -> Grammar | None:
    output = body.output_config or WireOutput()
    if output.task_budget is not None:
        raise Unsupported("output_config.task_budget is not served here: leave it out", param="output_config")
    format = output.format or body.output_format
    match format:
        case None:
            return None
        case WireFormat(type="json_schema", schema=None):
            raise DecodeError("output_config.format.schema is missing", param="output_config.format.schema")
        case WireFormat(type="json_schema", schema=dict() as schema):
            return JsonSchema(schema)
        case WireFormat(type=other):
            raise Unsupported(
                f"output_config.format is of type {other[:40]!r}, and json_schema is served",
                param="output_config.format.type",
            )


def _check_context(context: WireContext | None) -> None:
    """Only the directive that changes nothing is served: every earlier thinking stays."""
    for index, edit in enumerate((context and context.edits) or ()):
        keeps_all = edit.keep in ("all", {"type": "all"})
        if edit.type != "clear_thinking_20251015" or not keeps_all:
            place = f"context_management.edits[{index}]"
            raise Unsupported(
                f'{place}: this server edits no context; only clear_thinking_20251015 with "keep": "all" passes',
                param=place,
            )


def _stops(stops: list[str]) -> tuple[str, ...]:
    if len(stops) > MAX_STOPS:
        raise InvalidRequest(
            f"{len(stops)} stop sequences, and at most {MAX_STOPS} are looked for", param="stop_sequences"
        )
    for index, text in enumerate(stops):
        if not 1 <= len(text) <= MAX_STOP_LENGTH:
            place = f"stop_sequences[{index}]"
            raise InvalidRequest(f"{place} must have 1 to {MAX_STOP_LENGTH} characters", param=place)
    return tuple(stops)

"""What the Anthropic dialect reads of a body, and what it refuses: each refusal names the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.errors import RequestError, Unsupported
from tensorfold.ir import (
    Chat,
    Image,
    JsonSchema,
    Limits,
    Message,
    Request,
    Sampling,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from tensorfold.testing.dialects import CONTEXT, refusal
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_anthropic.unserved import MESSAGES_FIELDS

DIALECT = anthropic_dialect()
CODEC, COUNT = DIALECT.endpoints[0].codec, DIALECT.inquiries[0].codec
USER: dict[str, Any] = {"role": "user", "content": "hi"}
HI: dict[str, Any] = {"max_tokens": 8, "messages": [USER]}
TOOL: dict[str, Any] = {"name": "f", "input_schema": {"type": "object", "properties": {}}}
SYSTEM = {"role": "system", "content": "Later."}


def request(**fields: Any) -> Request:
    (only,) = CODEC.decode(json.dumps({**HI, **fields}).encode(), CONTEXT).requests
    return only


def chat(**fields: Any) -> Chat:
    prompt = request(**fields).prompt
    assert isinstance(prompt, Chat)
    return prompt


def refused(**fields: Any) -> RequestError:
    body = json.dumps({**HI, **fields}).encode()
    error = refusal(CODEC, body)
    told = json.loads(CODEC.encode_error(error, "req_1"))
    assert (told["type"], told["error"]["type"], told["request_id"]) == ("error", "invalid_request_error", "req_1")
    return error


@pytest.mark.requirement("T-361", "T-362", "T-364")
def test_system_text_may_stand_in_front_and_in_between() -> None:
    """`system` is text or text blocks; text blocks are read in turns too, and system text between the turns."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": "c"}, SYSTEM, USER]
    expected = (
        Message("user", (Text("a"), Text("b"))),
        Message("assistant", (Text("c"),)),
        Message("system", (Text("Later."),)),
        Message("user", (Text("hi"),)),
    )
    assert chat(system="First.", messages=messages).messages == (Message("system", (Text("First."),)), *expected)
    assert chat(system=parts, messages=messages).messages == (Message("system", (Text("a"), Text("b"))), *expected)


def test_a_count_of_the_clients_own_requests_is_not_for_the_model() -> None:
    counted = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=9f3;"}
    assert chat(system=[counted]).messages == chat().messages
    assert chat(system=[counted, {"type": "text", "text": "a"}]).messages[0].parts == (Text("a"),)


@pytest.mark.requirement("T-366")
def test_results_of_tools_come_right_behind_their_calls() -> None:
    """Each `tool_result` is a message of its own, before the text of its turn; each shape of its content is read."""
    use = [{"type": "tool_use", "id": id, "name": "f", "input": {"x": [1, "é"]}} for id in ("t1", "t2", "t3")]
    results = [
        {"type": "text", "text": "also note this"},
        {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "two"}]},
        {"type": "tool_result", "tool_use_id": "t1", "content": "one", "is_error": True},
        {"type": "tool_result", "tool_use_id": "t3", "content": []},
    ]
    messages = [USER, {"role": "assistant", "content": use}, {"role": "user", "content": results}]
    assert chat(messages=messages, tools=[TOOL]).messages[1:] == (
        Message("assistant", tuple(ToolCall(id, "f", '{"x":[1,"é"]}') for id in ("t1", "t2", "t3"))),
        Message("tool", (ToolResult("t2", (Text("two"),)),)),
        Message("tool", (ToolResult("t1", (Text("one"),), is_error=True),)),
        Message("tool", (ToolResult("t3", ()),)),
        Message("user", (Text("also note this"),)),
    )


def test_images_reach_the_engine() -> None:
    """Image blocks, in turns and in results, as data or by URL."""
    data = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    link = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [link]}
    result_message, message = chat(messages=[{"role": "user", "content": [data, result]}]).messages
    assert message.parts == (Image("data:image/png;base64,AAAA"),)
    assert result_message.parts == (ToolResult("t", (Image("https://example.org/a.png"),)),)


@pytest.mark.requirement("T-372")
def test_thinking_comes_back_as_plain_text() -> None:
    """Thinking round-trips as plain text, whatever its signature."""
    blocks = [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "ok"}]
    messages = [USER, {"role": "assistant", "content": blocks}, USER]
    assert chat(messages=messages).messages[1].parts == (Thinking("hm"), Text("ok"))


@pytest.mark.parametrize("content", ["So", [{"type": "text", "text": "So"}]])
def test_a_reply_goes_on_from_the_assistants_last_words(content: object) -> None:
    assert chat(messages=[USER, {"role": "assistant", "content": content}]).continue_final_message
    assert not chat(messages=[USER, {"role": "assistant", "content": content}, USER]).continue_final_message


@pytest.mark.requirement("T-367")
@pytest.mark.parametrize(
    ("choice", "read"),
    [
        (None, ToolChoice()),
        ({"type": "auto"}, ToolChoice()),
        ({"type": "none"}, ToolChoice("none")),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required", parallel=False)),
        ({"type": "tool", "name": "f"}, ToolChoice("required", "f")),
    ],
)
def test_tools_and_the_choice_among_them(choice: object, read: ToolChoice) -> None:
    """Custom tools and every kind of `tool_choice`."""
    described = {**TOOL, "type": "custom", "description": "d", "strict": True, "cache_control": {"type": "ephemeral"}}
    wanted = request(tools=[described], tool_choice=choice)
    assert isinstance(wanted.prompt, Chat)
    offered = (Tool("f", "d", {"type": "object", "properties": {}}, strict=True),)
    assert wanted.prompt.tools == (() if read.mode == "none" else offered)
    assert wanted.tool_choice == read


@pytest.mark.requirement("T-368", "T-369")
def test_sampling_and_limits() -> None:
    """Sampling fields and `stop_sequences`; a limit past the window is cut, since the API demands one."""
    wanted = request(temperature=0.5, top_p="0.9", top_k=-1, min_p=0.1, seed=3, stop_sequences=["a", "b"])
    assert wanted.sampling == Sampling(temperature=0.5, top_p=0.9, top_k=0, min_p=0.1, seed=3)
    assert wanted.limits == Limits(max_tokens=8, stop=("a", "b"), overflow="cut")


@pytest.mark.requirement("T-370", "T-371", "T-373", "T-374")
@pytest.mark.parametrize(
    ("thinking", "variables", "effort", "budget"),
    [
        (None, {}, "none", None),
        ({"type": "disabled"}, {"enable_thinking": False}, None, None),
        ({"type": "enabled", "budget_tokens": 1024}, {"enable_thinking": True}, "high", 1024),
        ({"type": "adaptive", "display": "omitted"}, {"enable_thinking": True}, "high", None),
    ],
)
def test_thinking_is_off_unless_it_is_enabled_or_adaptive(
    thinking: object, variables: object, effort: str | None, budget: int | None
) -> None:
    """`thinking` and the effort of `output_config`, which is heard while thinking; `display` changes nothing."""
    wanted = request(thinking=thinking, output_config={"effort": "high"})
    assert isinstance(wanted.prompt, Chat)
    assert wanted.prompt.template_kwargs == variables
    assert wanted.prompt.reasoning_effort == effort
    assert wanted.limits.thinking_budget == budget


@pytest.mark.requirement("T-375")
@pytest.mark.parametrize("place", ["output_config", "output_format"])
def test_a_json_schema_binds_the_reply(place: str) -> None:
    """`output_config.format`, and the field that it had before."""
    format = {"type": "json_schema", "schema": {"type": "object"}}
    fields = {"output_config": {"format": format}} if place == "output_config" else {"output_format": format}
    assert request(**fields).grammar == JsonSchema({"type": "object"})


@pytest.mark.requirement("T-377", "T-388")
def test_the_context_is_not_edited() -> None:
    """Only the directive that keeps all thinking passes."""
    for keep in ("all", {"type": "all"}):
        request(context_management={"edits": [{"type": "clear_thinking_20251015", "keep": keep}]})
    request(context_management={"edits": []})
    turns = {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}
    for edit in (turns, {"type": "clear_tool_uses_20250919"}, {"type": "compact_20260112"}):
        error = refused(context_management={"edits": [edit]})
        assert isinstance(error, Unsupported)
        assert error.param == "context_management.edits[0]"


def _turn(*blocks: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


@pytest.mark.requirement("T-378", "T-379", "T-380", "T-385", "T-386", "T-387")
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, ["tools[0]", "web_search_20250305"]),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}, ["tools[0]", "mcp_toolset"]),
        ({"tools": [{**TOOL, "defer_loading": True}]}, ["tools[0].defer_loading"]),
        ({"tools": [{**TOOL, "allowed_callers": ["code_execution_20250825"]}]}, ["tools[0].allowed_callers"]),
        (_turn({"type": "document", "source": {"type": "file", "file_id": "f"}}), ["document"]),
        (_turn({"type": "image", "source": {"type": "file", "file_id": "f"}}), ["messages[0].content[0].source"]),
        (_turn({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "document"}]}), ["content[0]", "doc"]),
        (_turn({"type": "tool_addition", "tool": TOOL}), ["tool_addition"]),
        ({"messages": [USER, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}]}, ["red"]),
        ({"messages": [USER, {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s"}]}]}, ["server_"]),
        ({"messages": [USER, {**SYSTEM, "clear_at": "next_user_message"}]}, ["messages[1].clear_at"]),
        ({"messages": [USER, {**SYSTEM, "output_config": {"effort": "low"}}]}, ["messages[1].output_config"]),
        ({"messages": [{**USER, "clear_at": "next_user_message"}]}, ["messages[0].clear_at"]),
        ({"messages": [{**USER, "output_config": {"effort": "low"}}]}, ["messages[0].output_config"]),
        ({"messages": [USER, {"role": "assistant", "content": "x", "output_config": {}}]}, ["messages[1].output_c"]),
        ({"thinking": {"type": "between_tools"}}, ["between_tools"]),
        ({"output_config": {"format": {"type": "xml"}}}, ["xml"]),
        ({"output_config": {"task_budget": {"total": 5}}}, ["task_budget"]),
    ],
)
def test_what_is_not_served_is_refused_by_name(fields: dict[str, Any], words: list[str]) -> None:
    """Server-side tools, documents and file ids, redacted thinking, turn-scoped system text, inline changes."""
    error = refused(**fields)
    assert isinstance(error, Unsupported)
    for word in words:
        assert word in error.message


@pytest.mark.parametrize("field", MESSAGES_FIELDS)
def test_a_field_that_is_not_served_passes_with_its_default_alone(field: str) -> None:
    for value in (None, *MESSAGES_FIELDS[field]):
        request(**{field: value})
    assert refused(**{field: {"other": "value"}}).param == field


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (_turn({"type": "text"}), "messages[0].content[0].text"),
        (_turn({"type": "tool_result", "content": "x"}), "messages[0].content[0].tool_use_id"),
        (_turn({"type": "image"}), "messages[0].content[0].source"),
        (_turn({"type": "image", "source": {"type": "base64"}}), "messages[0].content[0].source"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "8"}, "max_tokens"),
        ({"temperature": True}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"stop_sequences": ["x"] * 65}, "stop_sequences"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"priority": "high"}, "priority"),
    ],
)
def test_a_malformed_field_is_named(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields).param == param


@pytest.mark.requirement("T-383")
def test_hints_for_a_cache_are_accepted() -> None:
    """`cache_control` anywhere changes nothing."""
    hint = {"type": "ephemeral", "ttl": "1h"}
    blocks = [{"type": "text", "text": "hi", "cache_control": hint}]
    hinted = chat(cache_control=hint, tools=[{**TOOL, "cache_control": hint}], messages=[{**USER, "content": blocks}])
    assert hinted == chat(tools=[TOOL])


def test_a_count_reads_the_same_prompt_and_needs_no_limit() -> None:
    for body in (b'{"messages": []}', b"{}"):
        assert refusal(COUNT, body).param == "messages"
    COUNT.decode(b'{"messages": [{"role": "user", "content": "x"}]}', CONTEXT)

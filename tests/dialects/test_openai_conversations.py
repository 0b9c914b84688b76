"""Tools, reasoning and bound replies, as the OpenAI dialect reads and writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.contracts.dialect import Exchange
from tensorfold.errors import RequestError
from tensorfold.ir import (
    Answer,
    Chat,
    Choice,
    Ebnf,
    Event,
    Failed,
    Finished,
    JsonObject,
    JsonSchema,
    Limits,
    Message,
    Queued,
    Regex,
    Request,
    Stopped,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    Timings,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolChoice,
    Usage,
    fold,
)
from tensorfold.testing.dialects import CONTEXT, refusal
from tensorfold_dialect_openai import openai_dialect

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
CODECS = {endpoint.path: endpoint.codec for endpoint in openai_dialect().endpoints}
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
ONCE: dict[str, Any] = {"prompt": "Once"}
BOTH = pytest.mark.parametrize(("path", "base"), [(CHAT, HI), (COMPLETIONS, ONCE)], ids=["chat", "completions"])
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Tells.", "parameters": SCHEMA, "strict": True},
}
OTHER: dict[str, Any] = {"type": "function", "function": {"name": "now"}}


def decode(body: dict[str, Any], path: str = CHAT) -> Exchange:
    return CODECS[path].decode(json.dumps(body).encode(), CONTEXT)


def request(path: str = CHAT, **fields: Any) -> Request:
    return decode({**(HI if path == CHAT else ONCE), **fields}, path).requests[0]


def chat(**fields: Any) -> Chat:
    prompt = request(**fields).prompt
    assert isinstance(prompt, Chat)
    return prompt


def refused(path: str = CHAT, **fields: Any) -> RequestError:
    return refusal(CODECS[path], json.dumps({**(HI if path == CHAT else ONCE), **fields}).encode())


# ---- tools -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("T-086", "T-087")
def test_tools_are_offered_unless_none_may_be_called() -> None:
    """Function tools reach the template with their schemas; `tool_choice: none` hides them."""
    tools = (Tool("get_weather", "Tells.", SCHEMA, strict=True), Tool("now"))
    assert chat(tools=[TOOL, OTHER]).tools == tools
    assert list(tools[0].parameters or {}) == ["type", "properties"]
    for choice in (None, "auto", "required"):
        assert chat(tools=[TOOL, OTHER], tool_choice=choice).tools == tools
    hidden = request(tools=[TOOL, OTHER], tool_choice="none")
    assert isinstance(hidden.prompt, Chat)
    assert (hidden.prompt.tools, hidden.tool_choice.mode) == ((), "none")


@pytest.mark.requirement("T-088", "T-195")
def test_a_call_may_be_demanded_of_any_tool_or_of_one() -> None:
    """A named function is the only one that the template offers."""
    assert request(tools=[TOOL]).tool_choice == ToolChoice()
    assert request(tools=[TOOL, OTHER], tool_choice="required").tool_choice == ToolChoice("required")
    named = request(tools=[TOOL, OTHER], tool_choice={"type": "function", "function": {"name": "now"}})
    assert named.tool_choice == ToolChoice("required", "now")
    assert isinstance(named.prompt, Chat)
    assert [tool.name for tool in named.prompt.tools] == ["now"]


def allowed(mode: object, *tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_some_of_the_tools_may_be_allowed(mode: Any) -> None:
    """The others are not shown, so that they cannot be called either."""
    found = request(tools=[TOOL, OTHER], tool_choice=allowed(mode, OTHER))
    assert found.tool_choice == ToolChoice(mode)
    assert isinstance(found.prompt, Chat)
    assert [tool.name for tool in found.prompt.tools] == ["now"]


@pytest.mark.requirement("T-089")
def test_parallel_calls_can_be_turned_off() -> None:
    """Null and true leave them on."""
    for given, parallel in ((None, True), (True, True), (False, False)):
        assert request(tools=[TOOL], parallel_tool_calls=given).tool_choice == ToolChoice(parallel=parallel)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": {}}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "required", "tools": []}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "x"}}, "tools": [TOOL]}, "tool_choice"),
        ({"tool_choice": {"type": "function"}, "tools": [TOOL]}, "tool_choice.function.name"),
        ({"tool_choice": "sometimes", "tools": [TOOL]}, "tool_choice"),
        ({"tool_choice": allowed("auto", TOOL)}, "tool_choice"),
        ({"tool_choice": allowed("auto", OTHER), "tools": [TOOL]}, "tool_choice"),
        ({"tool_choice": allowed("auto"), "tools": [TOOL]}, "tool_choice.allowed_tools.tools"),
        ({"tool_choice": allowed("some", TOOL), "tools": [TOOL]}, "tool_choice.allowed_tools.mode"),
        ({"tool_choice": {"type": "allowed_tools"}, "tools": [TOOL]}, "tool_choice.allowed_tools.mode"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
    ],
)
def test_what_no_tool_is_and_no_choice_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields).param == param


# ---- reasoning ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("T-108", "T-219")
@pytest.mark.parametrize("effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max", None])
def test_an_effort_reaches_the_template(effort: str | None) -> None:
    """Seven words, and null for none."""
    assert chat(reasoning_effort=effort).reasoning_effort == effort


@pytest.mark.requirement("T-099", "T-258", "Y-049")
def test_variables_of_the_template_are_an_object_under_either_name() -> None:
    """`template_vars` is another name; a value that is neither object nor null is a 400."""
    variables = {"enable_thinking": False, "x": [1]}
    assert chat(chat_template_kwargs=variables).template_kwargs == variables
    assert chat(template_vars=variables).template_kwargs == variables
    both = chat(template_vars={"a": 1, "b": 1}, chat_template_kwargs={"b": 2})
    assert both.template_kwargs == {"a": 1, "b": 2}
    assert chat(chat_template_kwargs=None).template_kwargs == {}
    for field in ("chat_template_kwargs", "template_vars"):
        wrong: list[Any] = [[], "x", 1, True]
        for value in wrong:
            fields: dict[str, Any] = {field: value}
            assert refused(**fields).param == field
    assert refused(reasoning_effort="ultra").param == "reasoning_effort"


@pytest.mark.requirement("T-109", "T-241", "Y-042")
@BOTH
def test_a_thinking_budget_has_two_names(path: str, base: dict[str, Any]) -> None:
    """0 and null are the server's."""
    for name in ("thinking_budget", "reasoning_budget_tokens"):
        for given, read in ((7, 7), (0, None), (None, None)):
            assert request(path, **{name: given}).limits.thinking_budget == read
        assert refused(path, **{name: -1}).param == "thinking_budget"
        assert refused(path, **{name: "7"}).param == name
    assert request(path, thinking_budget=5, reasoning_budget_tokens=5).limits.thinking_budget == 5
    assert refused(path, thinking_budget=5, reasoning_budget_tokens=6).param == "thinking_budget"


@pytest.mark.requirement("Y-044")
@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_a_turns_reasoning_has_three_names(name: str) -> None:
    """Whichever a client sends back."""
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", name: "R"}]
    assert chat(messages=messages).messages[1] == Message("assistant", (Thinking("R"), Text("a")))


@pytest.mark.requirement("Y-036", "Y-038", "Y-039", "Y-040", "Y-041")
def test_the_last_message_is_continued_in_its_reasoning_or_its_content() -> None:
    """`true` leaves it to the message; the reasoning has three names."""
    cases: dict[Any, tuple[bool, str | None]] = {
        None: (False, None),
        False: (False, None),
        True: (True, None),
        "reasoning_content": (True, "thinking"),
        "reasoning": (True, "thinking"),
        "thinking": (True, "thinking"),
        "content": (True, "text"),
    }
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    for given, (continued, part) in cases.items():
        for begun in (None, False) if continued else (None, True):
            found = chat(messages=messages, continue_final_message=given, add_generation_prompt=begun)
            assert (found.continue_final_message, found.continued_part) == (continued, part)
    assert refused(continue_final_message="all").param == "continue_final_message"
    assert refused(continue_final_message=True, add_generation_prompt=True).param == "continue_final_message"
    assert refused(add_generation_prompt=False).param == "add_generation_prompt"


def test_content_may_be_missing_in_any_turn() -> None:
    """Agents send turns without text."""
    for role in ("system", "developer", "user", "assistant"):
        for content in ({}, {"content": None}):
            assert chat(messages=[{"role": role, **content}]).messages == (Message(role, ()),)


# ---- bound replies -----------------------------------------------------------------------------------------


@pytest.mark.requirement("T-105", "T-199", "T-200", "T-201")
@BOTH
@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": None, "guided_json": None, "structured_outputs": {}}, None),
        ({"response_format": {"type": "json_object"}}, JsonObject()),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}, SCHEMA),
        ({"guided_json": SCHEMA}, SCHEMA),
        ({"guided_json": json.dumps(SCHEMA)}, SCHEMA),
        ({"guided_json": True}, JsonSchema(True)),
        ({"guided_regex": "a+"}, Regex("a+")),
        ({"guided_choice": ["a", "b"]}, Choice(("a", "b"))),
        ({"guided_grammar": 'root ::= "a"'}, Ebnf('root ::= "a"')),
        ({"structured_outputs": {"json": SCHEMA}}, SCHEMA),
        ({"structured_outputs": {"json_object": True}}, JsonObject()),
        ({"structured_outputs": {"regex": "a+"}}, Regex("a+")),
        ({"structured_outputs": {"choice": ["a"]}}, Choice(("a",))),
        ({"structured_outputs": {"grammar": "root ::= [a]"}}, Ebnf("root ::= [a]")),
    ],
)
def test_six_fields_bind_a_reply(path: str, base: dict[str, Any], fields: dict[str, Any], grammar: Any) -> None:
    """A schema, any JSON object, an expression, a choice or a grammar; keys stay in the schema's order."""
    expected = JsonSchema(grammar) if isinstance(grammar, dict) else grammar
    found = request(path, **fields).grammar
    assert found == expected
    if isinstance(found, JsonSchema) and isinstance(found.schema, dict):
        assert json.dumps(found.schema) == json.dumps(SCHEMA)


@pytest.mark.requirement("T-213")
@BOTH
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": 42}}},
            "response_format.json_schema.schema",
        ),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": "[]"}, "guided_json"),
        ({"guided_regex": 5}, "guided_regex"),
        ({"guided_choice": "a"}, "guided_choice"),
        ({"guided_choice": [1]}, "guided_choice[0]"),
        ({"structured_outputs": {"choice": "a"}}, "structured_outputs.choice"),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice"),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
            "structured_outputs.regex",
        ),
    ],
)
def test_a_malformed_field_is_refused_with_its_place(
    path: str, base: dict[str, Any], fields: dict[str, Any], param: str
) -> None:
    """Also two that contradict each other."""
    assert refused(path, **fields).param == param


# ---- loops and ends ----------------------------------------------------------------------------------------


@pytest.mark.requirement("Y-023", "Y-027", "Y-031")
@BOTH
def test_loop_detection_is_switched_by_either_name(path: str, base: dict[str, Any]) -> None:
    """Of `loop_detect_window` only 0 is off; its size does nothing."""
    assert request(path).limits == Limits()
    for fields, wanted in (
        ({"loop_detect": False}, False),
        ({"loop_detect": True}, True),
        ({"loop_detect_window": 0}, False),
        ({"loop_detect_window": 1}, True),
        ({"loop_detect_window": 800}, True),
        ({"loop_detect": False, "loop_detect_window": 800}, False),
    ):
        assert request(path, **fields).limits.loop_detect is wanted
    assert request(path, loop_detect_error=True).limits.loop_detect_error


@pytest.mark.requirement("Y-144")
@BOTH
def test_a_reply_may_end_at_its_first_text(path: str, base: dict[str, Any]) -> None:
    """A field of both completion endpoints."""
    assert request(path, stop_after_output=True).limits.stop_after_output
    assert not request(path, stop_after_output=None).limits.stop_after_output


# ---- answers -----------------------------------------------------------------------------------------------

USAGE = Finished(Usage(3, 9, reasoning_tokens=4), Timings(), ("00",))


def answered(events: list[Event], path: str = CHAT) -> tuple[Any, list[Any]]:
    """The whole answer's body, and the stream's events."""
    exchange = decode(HI if path == CHAT else ONCE, path)
    encoder = exchange.encoder()
    stream = b"".join(encoder.feed(event) for event in [Queued(3), *events]).decode()
    chunks = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    return json.loads(exchange.answer(_folded(events))), chunks


def _folded(events: list[Event]) -> Answer:
    return fold(events)


@pytest.mark.requirement("T-272", "T-273", "T-276")
def test_reasoning_and_calls_have_fields_of_their_own() -> None:
    """`reasoning_content`, `tool_calls` with `finish_reason: tool_calls`, and the reasoning's tokens in the usage."""
    whole, chunks = answered(
        [
            ThinkingDelta(0, "Let me"),
            ThinkingDelta(0, " see"),
            ToolCallDelta(0, 0, "call_a", "get_weather", ""),
            ToolCallDelta(0, 0, None, None, '{"city": "Pa'),
            ToolCallDelta(0, 0, None, None, 'ris"}'),
            ToolCallDelta(0, 1, "call_b", "now", "{}"),
            Stopped(0, "tool_calls"),
            USAGE,
        ]
    )
    message = whole["choices"][0]["message"]
    assert message["reasoning_content"] == "Let me see"
    assert message["content"] is None
    assert [(call["id"], call["function"]) for call in message["tool_calls"]] == [
        ("call_a", {"name": "get_weather", "arguments": '{"city": "Paris"}'}),
        ("call_b", {"name": "now", "arguments": "{}"}),
    ]
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Let me see"
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [call["index"] for call in calls] == [0, 0, 0, 1]
    assert [call.get("id") for call in calls] == ["call_a", None, None, "call_b"]
    assert [call["function"].get("name") for call in calls] == ["get_weather", None, None, "now"]
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    assert reasons == [None] * (len(reasons) - 1) + ["tool_calls"]
    assert chunks[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4


def test_a_reply_without_calls_has_no_list_of_them() -> None:
    """TC-17: SDK loops take an empty list for a turn of tools."""
    whole, chunks = answered([TextDelta(0, "It is sunny."), Stopped(0, "end", ended_by="<|im_end|>"), USAGE])
    assert "tool_calls" not in whole["choices"][0]["message"]
    assert all("tool_calls" not in choice["delta"] for chunk in chunks for choice in chunk["choices"])
    assert "stop_str" not in whole["choices"][0]


@pytest.mark.requirement("Y-028", "Y-029", "Y-030")
def test_a_loop_is_told_as_one() -> None:
    """`finish_reason: repetition` and `eos_reason: loop_detected`; one within the reasoning leaves no content."""
    whole, chunks = answered([ThinkingDelta(0, "again and again"), Stopped(0, "repetition"), USAGE])
    choice = whole["choices"][0]
    assert (choice["finish_reason"], choice["eos_reason"]) == ("repetition", "loop_detected")
    assert (choice["message"]["content"], choice["message"]["reasoning_content"]) == ("", "again and again")
    assert chunks[-1]["choices"][0]["eos_reason"] == "loop_detected"
    whole, _ = answered([TextDelta(0, "x"), Stopped(0, "end"), USAGE])
    assert "eos_reason" not in whole["choices"][0]


@pytest.mark.requirement("Y-033", "Y-034")
def test_a_loop_that_fails_the_request_is_an_error() -> None:
    """Streamed, the same object is the last event before the end."""
    failed = Failed("a loop", 500, "server_error", "loop_detected")
    encoder = decode({**HI, "stream": True}).encoder()
    events: list[Event] = [Queued(3), TextDelta(0, "x"), failed]
    stream = b"".join(encoder.feed(event) for event in events).decode()
    *_, error, done = [line[6:] for line in stream.splitlines() if line]
    expected = {"error": {"message": "a loop", "type": "server_error", "param": None, "code": "loop_detected"}}
    assert (json.loads(error), done) == (expected, "[DONE]")
    assert json.loads(CODECS[CHAT].encode_error(failed.error(), "r")) == expected


@pytest.mark.requirement("Y-146")
@pytest.mark.parametrize(
    ("stopped", "word"),
    [
        (Stopped(0, "end", ended_by="<|im_end|>"), "<|im_end|>"),
        (Stopped(0, "stop", "END", "END"), "END"),
        (Stopped(0, "length"), None),
    ],
)
def test_a_completion_names_what_ended_it(stopped: Stopped, word: str | None) -> None:
    """The stop token or string, in `stop_str`."""
    whole, chunks = answered([TextDelta(0, "x"), stopped, USAGE], COMPLETIONS)
    assert whole["choices"][0].get("stop_str") == chunks[-1]["choices"][0].get("stop_str") == word


@pytest.mark.requirement("T-085", "T-173")
def test_every_role_is_read_and_nothing_of_the_callers_is_changed() -> None:
    """System, developer, user, assistant with calls, and tool messages."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "S"},
        {"role": "developer", "content": [{"type": "text", "text": "D"}]},
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ]
    before = json.dumps(messages)
    found = chat(messages=messages, tools=[TOOL])
    assert [message.role for message in found.messages] == ["system", "developer", "user", "assistant", "tool"]
    assert found.messages[3].parts == (ToolCall("c", "f", '{"a":1}'),)
    assert json.dumps(messages) == before

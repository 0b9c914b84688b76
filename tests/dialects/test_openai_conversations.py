"""Roles, tools and reasoning of a conversation, as the OpenAI dialect reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.ir import Chat, Message, Text, Thinking, Tool, ToolCall, ToolChoice

from .openai_requests import BOTH, SCHEMA, refused, request

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Tells.", "parameters": SCHEMA, "strict": True},
}
OTHER: dict[str, Any] = {"type": "function", "function": {"name": "now"}}


def chat(**fields: Any) -> Chat:
    prompt = request(**fields).prompt
    assert isinstance(prompt, Chat)
    return prompt


# ---- turns -------------------------------------------------------------------------------------------------


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


def test_content_may_be_missing_in_any_turn() -> None:
    """Agents send turns without text."""
    for role in ("system", "developer", "user", "assistant"):
        for content in ({}, {"content": None}):
            assert chat(messages=[{"role": role, **content}]).messages == (Message(role, ()),)


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

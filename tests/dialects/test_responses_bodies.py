"""What Responses reads of a body, and what it refuses: each refusal names the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.errors import RequestError, Unsupported
from tensorfold.ir import (
    Chat,
    Choice,
    Grammar,
    Image,
    JsonObject,
    JsonSchema,
    Limits,
    Message,
    Regex,
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
from tensorfold_dialect_openai import openai_dialect
from tensorfold_dialect_openai.responses_unserved import RESPONSES_FIELDS

(CODEC,) = (endpoint.codec for endpoint in openai_dialect().endpoints if endpoint.path == "/v1/responses")
USER: dict[str, Any] = {"role": "user", "content": "hi"}
F: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
G: dict[str, Any] = {**F, "name": "g"}


def request(**fields: Any) -> Request:
    (only,) = CODEC.decode(json.dumps({"input": "hi", **fields}).encode(), CONTEXT).requests
    return only


def chat(**fields: Any) -> Chat:
    prompt = request(**fields).prompt
    assert isinstance(prompt, Chat)
    return prompt


def refused(**fields: Any) -> RequestError:
    return refusal(CODEC, json.dumps({"input": "hi", **fields}).encode())


@pytest.mark.requirement("T-313", "T-314", "T-320")
def test_input_is_a_text_or_items() -> None:
    """A string is a user message; items are messages with `input_text`; `instructions` are the system message."""
    parts = [{"type": "input_text", "text": "h"}, {"type": "input_text", "text": "i"}]
    hi = Message("user", (Text("hi"),))
    assert chat(input="hi").messages == (hi,)
    assert chat(input=[USER]).messages == (hi,)
    assert chat(input=[{**USER, "type": "message", "content": parts}]).messages[0].parts == (Text("h"), Text("i"))
    assert chat(input="hi", instructions="Be brief.").messages == (Message("system", (Text("Be brief."),)), hi)
    roles = [{"role": role, "content": "x"} for role in ("system", "developer", "user", "assistant")]
    assert [message.role for message in chat(input=roles).messages] == ["system", "developer", "user", "assistant"]


def test_images_reach_the_engine() -> None:
    """`input_image` parts in messages and in outputs of calls."""
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
    output = {"type": "function_call_output", "call_id": "c", "output": [image]}
    message, result = chat(input=[{"role": "user", "content": [image]}, output]).messages
    assert message.parts == (Image("data:image/png;base64,AAAA", "low"),)
    assert result.parts == (ToolResult("c", (Image("data:image/png;base64,AAAA", "low"),)),)


@pytest.mark.requirement("T-316", "T-317", "T-319", "T-358")
def test_the_items_of_one_turn_are_one_message() -> None:
    """Reasoning, text and calls side by side are one assistant message; outputs are messages of their own."""
    items = [
        {"type": "reasoning", "id": "rs_0", "summary": [], "content": None, "encrypted_content": None, "status": None},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b", "annotations": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": '{"c": 1}'},
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": ""},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a\nb"}]},
        {"type": "function_call_output", "call_id": "c2", "output": ""},
        {"type": "reasoning", "id": "rs_2", "summary": [], "content": [{"type": "reasoning_text", "text": "so"}]},
        {"role": "assistant", "content": "c"},
        {"role": "assistant", "content": "d"},
    ]
    assert chat(input=[USER, *items]).messages[1:] == (
        Message("assistant", (Thinking("hm"), Text("b"), ToolCall("c1", "f", '{"c": 1}'), ToolCall("c2", "f", ""))),
        Message("tool", (ToolResult("c1", (Text("a\nb"),)),)),
        Message("tool", (ToolResult("c2", (Text(""),)),)),
        Message("assistant", (Thinking("so"), Text("c"))),
        Message("assistant", (Text("d"),)),
    )


@pytest.mark.requirement("T-321", "T-322", "T-323")
@pytest.mark.parametrize(
    ("choice", "names", "read"),
    [
        (None, "fg", ToolChoice()),
        ("auto", "fg", ToolChoice()),
        ("none", "", ToolChoice("none")),
        ("required", "fg", ToolChoice("required")),
        ({"type": "function", "name": "g"}, "g", ToolChoice("required", "g")),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]}, "g", ToolChoice()),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]},
            "f",
            ToolChoice("required"),
        ),
    ],
)
def test_tools_and_the_choice_among_them(choice: object, names: str, read: ToolChoice) -> None:
    """Function tools, every kind of `tool_choice`, `parallel_tool_calls`."""
    wanted = request(tools=[F, G], tool_choice=choice)
    assert isinstance(wanted.prompt, Chat)
    assert "".join(tool.name for tool in wanted.prompt.tools) == names
    assert wanted.tool_choice == read
    assert not request(tools=[F], parallel_tool_calls=False).tool_choice.parallel
    assert chat(tools=[F]).tools == (Tool("f", None, {"type": "object", "properties": {}}),)


@pytest.mark.requirement("T-324", "T-325", "T-326", "T-327", "T-332")
def test_sampling_limits_and_extensions() -> None:
    """Sampling as in chat, `max_output_tokens`, `reasoning`, and the fields that chat has beyond OpenAI's."""
    wanted = request(temperature="0.5", top_p=1, top_k=-1, min_p=0.1, seed=3, max_output_tokens=8, stop=["a"])
    assert wanted.sampling == Sampling(temperature=0.5, top_p=1.0, top_k=0, min_p=0.1, seed=3)
    assert wanted.limits == Limits(max_tokens=8, stop=("a",))
    wanted = request(ignore_eos=True, thinking_budget=9, draft=False, priority="background")
    assert (wanted.limits, wanted.draft, wanted.priority) == (
        Limits(ignore_eos=True, thinking_budget=9),
        False,
        "background",
    )
    assert request(thinking_budget=0).limits.thinking_budget is None
    assert chat(chat_template_kwargs={"enable_thinking": False}).template_kwargs == {"enable_thinking": False}
    assert chat(reasoning={"effort": "none", "summary": "auto"}).reasoning_effort == "none"
    assert chat(reasoning={"summary": "detailed"}).reasoning_effort is None


@pytest.mark.requirement("T-332")
def test_a_field_of_chat_means_here_what_it_means_there() -> None:
    """Penalties, biases, stop ids, loops and budgets; a sampler that is not served is refused here too."""
    penalties: dict[str, Any] = {"presence_penalty": 0.5, "frequency_penalty": -0.5, "repetition_penalty": 1.1}
    assert request(**penalties, logit_bias={"7": 2}).sampling == Sampling(**penalties, logit_bias=((7, 2.0),))
    wanted: dict[str, Any] = {
        "min_tokens": 2,
        "stop_token_ids": [5],
        "loop_detect": False,
        "reasoning_budget_tokens": 9,
    }
    expected = Limits(min_tokens=2, stop_token_ids=(5,), loop_detect=False, thinking_budget=9)
    assert request(**wanted).limits == expected
    assert request(loop_detect_error=True).limits.loop_detect_error
    assert chat(template_vars={"a": 1, "b": 1}, chat_template_kwargs={"b": 2}).template_kwargs == {"a": 1, "b": 2}
    assert refused(xtc_probability=0.5).param == "xtc_probability"
    assert refused(thinking_budget=3, reasoning_budget_tokens=4).param == "thinking_budget"


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({"guided_regex": "a+"}, Regex("a+")),
        ({"guided_json": {"type": "object"}}, JsonSchema({"type": "object"})),
        ({"structured_outputs": {"choice": ["a", "b"]}}, Choice(("a", "b"))),
        ({"response_format": {"type": "json_object"}}, JsonObject()),
        ({"text": {"format": {"type": "text"}}, "guided_regex": "a"}, Regex("a")),
    ],
)
def test_what_binds_a_chat_binds_a_response(fields: dict[str, Any], read: Grammar) -> None:
    """Never taken and left aside, which would be an answer in another form than was asked for."""
    assert request(**fields).grammar == read


def test_a_form_is_given_once() -> None:
    error = refused(text={"format": {"type": "json_object"}}, guided_regex="a")
    assert (error.status, error.param) == (400, "text.format")


@pytest.mark.requirement("T-328")
@pytest.mark.parametrize(
    ("format", "read"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, JsonObject()),
        ({"type": "json_schema", "name": "n", "schema": {"type": "object"}}, JsonSchema({"type": "object"})),
    ],
)
def test_a_format_binds_the_text(format: object, read: Grammar | None) -> None:
    """`text.format`: a JSON schema or any JSON object."""
    assert request(text={"format": format}).grammar == read


@pytest.mark.requirement("T-331")
def test_metadata_is_bounded() -> None:
    """Up to 16 pairs of strings."""
    request(metadata={f"k{number}": "v" for number in range(16)})
    assert refused(metadata={f"k{number}": "v" for number in range(17)}).param == "metadata"
    assert refused(metadata={"k" * 65: "v"}).param == "metadata"
    assert refused(metadata={"k": "v" * 513}).param == "metadata"
    assert refused(metadata={"k": 1}).param == "metadata"


@pytest.mark.requirement("T-351")
def test_one_thing_alone_may_be_included() -> None:
    """Coding agents always ask for encrypted reasoning; it passes, and anything else is refused."""
    request(include=["reasoning.encrypted_content"])
    request(include=[])
    assert refused(include=["reasoning.encrypted_content", "file_search_call.results"]).param == "include"


@pytest.mark.requirement("T-349", "T-350", "T-352", "T-353", "T-354", "T-355", "T-356", "T-357", "T-358")
@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"tools": [{"type": "web_search"}, F]}, "tools", ["web_search", "disabled"]),
        ({"tools": [{"type": "namespace", "name": "n", "tools": []}]}, "tools", ["namespace", "agents.enabled"]),
        ({"tools": [{"type": "file_search", "vector_store_ids": []}]}, "tools", ["file_search"]),
        ({"tools": [{"type": "custom", "name": "c"}]}, "tools", ["custom"]),
        ({"background": True}, "background", []),
        ({"conversation": "conv_1"}, "conversation", []),
        ({"prompt": {"id": "pmpt_1"}}, "prompt", []),
        ({"truncation": "auto"}, "truncation", []),
        ({"top_logprobs": 2}, "top_logprobs", []),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, None, ["input_file"]),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, None, ["file id"]),
        ({"input": [{"type": "item_reference", "id": "x"}]}, None, ["item_reference"]),
        ({"input": [{"type": "web_search_call", "id": "x", "status": "completed"}]}, None, ["web_search_call"]),
        (
            {"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_file"}]}]},
            None,
            ["input_file"],
        ),
        ({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}]}, None, ["encrypted"]),
        ({"text": {"verbosity": "low"}}, "text.verbosity", []),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice", ["web_search"]),
    ],
)
def test_what_is_not_served_is_refused_by_name(fields: dict[str, Any], param: str | None, words: list[str]) -> None:
    """Built-in tools (with the client's setting), background, conversation, templates, files, references, ..."""
    error = refused(**fields)
    assert isinstance(error, Unsupported)
    assert error.param == param or param is None
    for word in words:
        assert word in error.message


@pytest.mark.parametrize("field", RESPONSES_FIELDS)
def test_a_field_that_is_not_served_passes_with_its_default_alone(field: str) -> None:
    for value in (None, *RESPONSES_FIELDS[field]):
        request(**{field: value})
    assert refused(**{field: {"other": "value"}}).param == field


@pytest.mark.requirement("T-359")
def test_a_response_that_is_not_stored_cannot_be_continued() -> None:
    """400 for a `previous_response_id` that is not stored."""
    error = refused(previous_response_id="resp_none")
    assert (error.status, error.param, error.code) == (400, "previous_response_id", "previous_response_not_found")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input"),
        ({"input": 7}, "input"),
        ({"input": [{"content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]}, "input[0].name"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input[0].arguments"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": "8"}, "max_output_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [F], "tool_choice": {"type": "function", "name": "h"}}, "tool_choice"),
        ({"tools": [F], "tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"tools": [F], "tool_choice": {"type": "allowed_tools", "mode": "some", "tools": [F]}}, "tool_choice.mode"),
        ({"tools": [F], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [G]}}, "tool_choice"),
        ({"tools": [F], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice"),
        ({"priority": "high"}, "priority"),
        ({"store": "yes"}, "store"),
    ],
)
def test_a_malformed_field_is_named(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields).param == param

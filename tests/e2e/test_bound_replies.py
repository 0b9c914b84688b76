"""Schemas and demanded calls on a real model, through the real SDK: streamed, whole, drafted, serial and in company."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

pytest.importorskip("xgrammar", reason="structured output needs the extra `grammar`")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "kind": {"enum": ["cat", "dog", None]},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{1,6}$"}, "maxItems": 2},
    },
    "required": ["name", "age", "kind", "tags"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "pet", "schema": SCHEMA}}
QUESTION: Any = [{"role": "user", "content": "Describe a pet as JSON."}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    },
    {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}},
]


def check(text: str | None) -> None:
    """The reply keeps to the schema."""
    value = json.loads(text or "")
    assert list(value) == ["name", "age", "kind", "tags"]
    assert 1 <= len(value["name"]) <= 12
    assert 0 <= value["age"] <= 130
    assert isinstance(value["age"], int)
    assert value["kind"] in ("cat", "dog", None)
    assert len(value["tags"]) <= 2
    assert all(tag.isascii() and tag.islower() and 1 <= len(tag) <= 6 for tag in value["tags"])


def pet(client: openai.OpenAI, seed: int, **fields: Any) -> Any:
    return client.chat.completions.create(
        model="any",
        messages=QUESTION,
        response_format=FORMAT,
        temperature=0.9,
        seed=seed,
        max_tokens=400,
        **fields,
    )


def told(answer: Any) -> tuple[str, str]:
    """Text and token hash."""
    return answer.choices[0].message.content, answer.model_extra["tensorfold"]["token_sha"]


@pytest.mark.requirement("T-199", "T-202", "T-206")
def test_a_schema_is_kept_to_whatever_is_drawn(client: openai.OpenAI) -> None:
    """SO-14: serial, and beside other requests, the same reply."""
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: told(pet(client, seed)), range(4)))
    for seed, (text, sha) in enumerate(together):
        check(text)
        if seed < 2:
            assert told(pet(client, seed, extra_body={"draft": False})) == (text, sha)
    stream = pet(client, 0, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == together[0][0]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_schema_is_kept_to_over_200_seeds(client: openai.OpenAI) -> None:
    """Sampled, eight at a time; however long a busy machine takes for one."""
    patient = client.with_options(timeout=1500)
    with ThreadPoolExecutor(8) as pool:
        for text, _ in pool.map(lambda seed: told(pet(patient, seed)), range(200)):
            check(text)


@pytest.mark.requirement("T-088", "T-196", "T-273")
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_time"}}])
def test_a_call_that_is_demanded_is_made(client: openai.OpenAI, choice: Any) -> None:
    """By a model that was never taught to call: the same call streamed and whole, drafted and serial."""

    def ask(**fields: Any) -> Any:
        return client.chat.completions.create(
            model="any", messages=QUESTION, tools=TOOLS, tool_choice=choice, temperature=0, max_tokens=48, **fields
        )

    whole, serial = ask(), ask(extra_body={"draft": False})
    call = whole.choices[0].message.tool_calls[0]
    assert call.function.name in (["get_weather", "get_time"] if choice == "required" else ["get_time"])
    assert whole.model_extra["tensorfold"]["token_sha"] == serial.model_extra["tensorfold"]["token_sha"]
    assert whole.choices == serial.choices
    pieces = [
        piece
        for chunk in ask(stream=True)
        for choice_ in chunk.choices
        for piece in choice_.delta.tool_calls or ()
        if piece.index == 0
    ]
    assert [piece.function.name for piece in pieces if piece.function.name] == [call.function.name]
    assert "".join(piece.function.arguments or "" for piece in pieces) == call.function.arguments
    if whole.choices[0].finish_reason == "tool_calls":
        json.loads(call.function.arguments)


@pytest.mark.requirement("T-181")
@pytest.mark.parametrize("stop", ["get", "name", "call>"])
def test_a_call_that_is_cut_before_it_has_begun_is_content_from_its_first_mark_on(
    client: openai.OpenAI, stop: str
) -> None:
    """A call that a stop text cuts before it has begun is content, from its opening mark on."""

    def ask(**fields: Any) -> Any:
        return client.chat.completions.create(
            model="any",
            messages=QUESTION,
            tools=TOOLS,
            tool_choice="required",
            temperature=0,
            max_tokens=48,
            stop=stop,
            **fields,
        )

    told = ask(logprobs=True, top_logprobs=1).choices[0]
    assert told.logprobs is not None
    assert "".join(token.token for token in told.logprobs.content) == told.message.content
    message = ask().choices[0].message
    assert message == told.message
    assert message.tool_calls is None
    assert message.content == '<tool_call>\n{"name": "get'.partition(stop)[0]
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in ask(stream=True))
    assert streamed == message.content


@pytest.mark.requirement("T-214")
def test_a_schema_that_cannot_be_kept_to_is_a_400_also_when_streamed(client: openai.OpenAI) -> None:
    """SO-10: before the stream opens, with the reason."""
    schema = {"type": "object", "properties": {"g": {"type": "string", "pattern": "^(unclosed$"}}, "required": ["g"]}
    response_format: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    stream: Any
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="a group is not closed") as caught:
            client.chat.completions.create(
                model="any",
                messages=QUESTION,
                stream=stream,
                response_format=response_format,
            )
        assert caught.value.param == "response_format"


@pytest.mark.requirement("T-213", "T-214")
@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("chat/completions", {"guided_regex": "("}, "guided_regex"),
        ("chat/completions", {"structured_outputs": {"json": {"type": "no type"}}}, "structured_outputs.json"),
        ("chat/completions", {"guided_grammar": "root ::= nothing"}, "guided_grammar"),
        ("chat/completions", {"guided_choice": []}, "guided_choice"),
        ("completions", {"structured_outputs": {"grammar": "root ::= nothing"}}, "structured_outputs.grammar"),
        ("completions", {"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ("completions", {"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"),
        ("responses", {"text": {"format": {"type": "json_schema", "schema": {"type": "no type"}}}}, "text.format"),
        ("responses", {"guided_regex": "("}, "guided_regex"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_form_that_is_refused_is_refused_by_the_name_that_it_was_sent_under(
    server: Any, path: str, fields: dict[str, Any], param: str, stream: bool
) -> None:
    """A malformed field is a 400 before any token, and no free reply; `param` is the field of this body."""
    given = {"chat/completions": {"messages": QUESTION}, "completions": {"prompt": "x"}, "responses": {"input": "x"}}
    answered = httpx.post(f"{server.url}/v1/{path}", json={**given[path], **fields, "stream": stream}, timeout=60)
    assert answered.status_code == 400
    assert answered.json()["error"]["param"] == param


@pytest.mark.requirement("Y-144", "Y-145")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_a_reply_that_ends_at_its_first_text_ends_behind_a_whole_character(
    server: Any, path: str, stream: bool
) -> None:
    """Also where the first token is a blank and the beginning of an emoji: one token more would be half of it."""
    first = httpx.post(f"{server.url}/tokenize", json={"prompt": " 🌧 rain", "return_token_strs": True}).json()
    assert first["token_strs"][0] == " \ufffd"
    given: dict[str, Any] = {"prompt": "x"} if path == "completions" else {"messages": QUESTION}
    body = {**given, "guided_choice": [" 🌧 rain"], "logit_bias": {first["tokens"][0]: 100}, "stream": stream}
    answered = httpx.post(f"{server.url}/v1/{path}", json={**body, "stop_after_output": True}, timeout=60)
    if stream:
        chunks = [json.loads(line[6:]) for line in answered.text.splitlines() if line.startswith("data: {")]
        text = "".join(
            choice.get("text") or choice.get("delta", {}).get("content") or ""
            for [choice] in (c["choices"] for c in chunks)
        )
        reason, usage = chunks[-1]["choices"][0]["finish_reason"], chunks[-1]["usage"]
    else:
        (choice,) = answered.json()["choices"]
        text = choice["text"] if path == "completions" else choice["message"]["content"]
        reason, usage = choice["finish_reason"], answered.json()["usage"]
    assert (text, reason, usage["completion_tokens"]) == (" 🌧", "length", 3)

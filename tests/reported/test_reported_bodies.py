"""Bodies that public reports say are fatal, or refused in words that help nobody: each is a 400 that names its field."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.testing.whole_server import WholeServer

from .asking import CHAT, COMPLETIONS, MESSAGES, RESPONSES, USER, Says, refused

POSTS = [
    *(CHAT, COMPLETIONS, RESPONSES, MESSAGES, "/v1/messages/count_tokens", "/tokenize", "/detokenize"),
    *("/v1/decisions", "/v1/systemone", "/apply-template", "/api/chat", "/api/generate", "/api/show"),
]


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("body", ['{"model":', "[]", "null", '"x"', "{}"])
def test_what_is_no_body_is_a_400_in_the_routes_own_envelope(shared: WholeServer, path: str, body: str) -> None:
    """BR-02: never a 500, and no count of nothing."""
    if (path, body) == ("/api/generate", "{}"):
        pytest.skip("Ollama's way to load a model")
    answered = shared.post(path, body.encode())
    assert answered.status_code == 400, answered.text
    told = answered.json()
    if path.startswith("/api/") and path != "/apply-template":
        assert isinstance(told["error"], str)
    elif path.startswith(MESSAGES):
        assert (told["type"], told["error"]["type"]) == ("error", "invalid_request_error")
    else:
        assert told["error"].keys() >= {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, '{"max_tokens":4,"messages":[{"role":"user","content":"half \\ud83c"}]}'),
        (COMPLETIONS, '{"max_tokens":4,"prompt":"\\udc0a"}'),
        (MESSAGES, '{"max_tokens":4,"messages":[{"role":"user","content":"b \\udf0d"}]}'),
        (RESPONSES, '{"input":"\\udf0d"}'),
        ("/tokenize", '{"prompt":"\\ud83c"}'),
    ],
)
def test_half_a_character_is_a_400(shared: WholeServer, path: str, body: str) -> None:
    """BR-01: which SDKs do not retry."""
    refused(shared, path, body.encode())


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": 42}}}, "response_format"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": 123}}]}]}, "messages"),
        ({"logit_bias": {"99999999": 5}}, "logit_bias"),
    ],
)
def test_a_field_of_a_wrong_kind_is_named(shared: WholeServer, fields: dict[str, Any], param: str) -> None:
    """BR-03, TK-02: the field, and nothing of the code's inside."""
    error = refused(shared, CHAT, {"messages": [USER], "max_tokens": 4, **fields})
    assert str(error["param"]).startswith(param)


@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "top_k", "seed"])
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", '"nan"', "true", "1e999"])
def test_what_is_no_number_is_a_400(shared: WholeServer, field: str, value: str) -> None:
    """BR-08: range checks that are written as comparisons let NaN through."""
    for path in (CHAT, COMPLETIONS):
        base = '"messages":[{"role":"user","content":"x"}]' if path == CHAT else '"prompt":"x"'
        body = f'{{"max_tokens":4,{base},"{field}":{value}}}'
        assert shared.post(path, body.encode()).status_code == 400


@pytest.mark.parametrize("id", [4294967295, -1, 5279552648203111001, 1.5, "7", True])
def test_an_id_that_does_not_exist_is_a_400(shared: WholeServer, id: Any) -> None:
    """TK-01: where ids are spelled, and where they are run."""
    refused(shared, "/detokenize", {"tokens": [id]})
    if not isinstance(id, str):  # a list of texts is a list of prompts
        refused(shared, COMPLETIONS, {"prompt": [id], "max_tokens": 4})


def test_a_prompt_past_the_window_is_told_in_the_words_that_clients_look_for(says: Says) -> None:
    """CX-01, BR-06, DI-01: one code, one window, on every route; a far longer one is not even tokenized."""
    server = says(window=1024)
    for words in (1000, 100_000):
        text = "word " * words
        turn = [{"role": "user", "content": text}]
        for path, body, params in (
            (CHAT, {"messages": turn}, {"messages"}),
            (COMPLETIONS, {"prompt": text}, {"prompt"}),
            (RESPONSES, {"input": text}, {"input", "messages"}),
            (MESSAGES, {"messages": turn, "max_tokens": 16}, None),
        ):
            error = refused(server, path, body)
            assert error["code"] == "context_length_exceeded"
            assert error["message"].startswith("This server's maximum context length is 1024 tokens")
            assert params is None or error["param"] in params
    (model,) = server.client.get("/v1/models").json()["data"]
    assert model["meta"]["n_ctx"] == model["max_model_len"] == 1024
    assert model["meta"]["n_ctx_train"] == 2048
    assert server.client.get("/props").json()["default_generation_settings"]["n_ctx"] == 1024
    assert server.told("/tokenize", {"prompt": "x"})["max_model_len"] == 1024


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64",
        "data:image/png;base64,@@@@",
        "data:image/png;base64,aGVsbG8=",
        "data:;base64,",
        "data:text/plain;base64,aGVsbG8=",
    ],
)
def test_a_picture_that_is_none_is_a_400(shared: WholeServer, url: str) -> None:
    """IM-01: as is every picture where the model reads text alone."""
    parts = [{"type": "image_url", "image_url": {"url": url}}]
    refused(shared, CHAT, {"messages": [{"role": "user", "content": parts}]})
    blocks = [{"type": "image", "source": {"type": "url", "url": url}}]
    refused(shared, MESSAGES, {"messages": [{"role": "user", "content": blocks}], "max_tokens": 4})


def test_a_tool_of_the_servers_is_refused_by_its_type(says: Says) -> None:
    """RS-06: and the function beside it is served."""
    server = says()
    function = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
    error = refused(server, RESPONSES, {"input": "hi", "tools": [{"type": "web_search"}, function]})
    assert (error["type"], error["param"]) == ("invalid_request_error", "tools")
    assert "web_search" in error["message"]
    server.told(RESPONSES, {"input": "hi", "tools": [function], "max_output_tokens": 4})


def test_labels_that_begin_alike_are_told_apart(shared: WholeServer) -> None:
    """DE-01: each option has a label of its own, and 26 of them are served."""

    def ask(*values: str) -> dict[str, Any]:
        choices = [{"value": value} for value in values]
        question = {"type": "choice", "name": "q", "instructions": "When?", "choices": choices}
        return {"input": "The parcel came today.", "questions": [question]}

    (answer,) = shared.told("/v1/decisions", ask("today", "today late", "tomorrow"))["answers"]
    assert [each["value"] for each in answer["probabilities"]] == ["today", "today late", "tomorrow"]
    assert sum(each["probability"] for each in answer["probabilities"]) == pytest.approx(1, abs=1e-6)
    shared.told("/v1/decisions", ask(*(f"option {n}" for n in range(26))))
    refused(shared, "/v1/decisions", ask(*(f"option {n}" for n in range(27))))

"""One question, asked in the words of every dialect, to one real model."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tensorfold.testing.waiting import until

QUESTION = "Name three colours of the rainbow."
USER: dict[str, Any] = {"role": "user", "content": QUESTION}
LIMIT = 12

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [USER], "max_tokens": LIMIT, "temperature": 0},
    "/v1/responses": {"input": QUESTION, "max_output_tokens": LIMIT, "temperature": 0},
    "/v1/messages": {"messages": [USER], "max_tokens": LIMIT, "temperature": 0},
    "/api/chat": {"messages": [USER], "options": {"num_predict": LIMIT, "temperature": 0}},
}


def found(value: Any, key: str) -> list[Any]:
    """Every value under this key, anywhere."""
    if isinstance(value, list):
        return [each for item in value for each in found(item, key)]
    if isinstance(value, dict):
        own = [value[key]] if key in value else []
        return own + [each for item in value.values() for each in found(item, key)]
    return []


def told(url: str, path: str, body: dict[str, Any]) -> list[Any]:
    """An answer's objects: one, or those of a stream."""
    reply = httpx.post(f"{url}{path}", json=body, timeout=120)
    assert reply.status_code == 200, reply.text
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.mark.requirement("T-311", "T-312", "T-360")
def test_one_question_has_one_reply_in_every_dialect(server: Any) -> None:
    """Chat, Responses, Messages and Ollama's chat, streamed and whole, give the same tokens."""
    shas = {
        sha
        for path, body in BODIES.items()
        for stream in (False, True)
        for sha in found(told(server.url, path, {**body, "stream": stream}), "token_sha")
    }
    assert len(shas) == 1


@pytest.mark.requirement("T-041", "T-057")
def test_every_dialect_counts_the_same_prompt(server: Any) -> None:
    """The count of tokens before a reply is that in its usage, and `/tokenize` shows the tokens themselves."""
    (counted,) = told(server.url, "/v1/messages/count_tokens", {"messages": [USER]})
    (message,) = told(server.url, "/v1/messages", BODIES["/v1/messages"])
    (shown,) = told(server.url, "/tokenize", {"messages": [USER]})
    usage = message["usage"]
    assert counted["input_tokens"] == usage["input_tokens"] + usage["cache_read_input_tokens"] == shown["count"]
    (text,) = told(server.url, "/detokenize", {"tokens": shown["tokens"]})
    (rendered,) = told(server.url, "/apply-template", {"messages": [USER]})
    assert text == rendered
    assert QUESTION in text["prompt"]
    window = httpx.get(f"{server.url}/props").json()["default_generation_settings"]["n_ctx"]
    assert window == shown["max_model_len"]


@pytest.mark.requirement("T-068")
def test_as_many_questions_as_are_taken_are_answered(server: Any) -> None:
    """Questions of a decision that are more than the server prepares at a time take turns, and are not refused."""
    questions = [{"id": str(number), "type": "yes_no", "question": f"Is {number} odd?"} for number in range(80)]
    (decided,) = told(server.url, "/v1/decisions", {"input": "Numbers.", "questions": questions})
    assert list(decided["answers"]) == [str(number) for number in range(80)]


@pytest.mark.requirement("T-039")
def test_as_many_prompts_as_are_taken_are_answered(server: Any) -> None:
    """128 prompts of one body are more than run and wait at a time, and are served."""
    prompts = [f"{number}, " for number in range(128)]
    (whole,) = told(server.url, "/v1/completions", {"prompt": prompts, "max_tokens": 1, "temperature": 0})
    assert [choice["index"] for choice in whole["choices"]] == list(range(128))
    assert len(whole["tensorfold"]["choice_token_sha"]) == 128


@pytest.mark.requirement("T-093")
def test_a_temperature_that_is_next_to_nothing_is_greedy(server: Any) -> None:
    """A temperature next to nothing gives the likeliest token, and not the first one of the vocabulary."""
    body = {"prompt": "The capital of France is", "max_tokens": 4}
    replies = [told(server.url, "/v1/completions", {**body, "temperature": each})[0] for each in (0, 5e-324, 1e-200)]
    assert len({reply["tensorfold"]["token_sha"] for reply in replies}) == 1


LONG = "word " * 9000
SCHEMA = {"type": "object", "not": {}}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}


@pytest.mark.requirement("T-064", "T-091", "T-214")
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}, "messages"),
        ("/v1/chat/completions", {"messages": [USER], "max_completion_tokens": 0}, "max_completion_tokens"),
        ("/v1/completions", {"prompt": LONG}, "prompt"),
        ("/v1/completions", {"prompt": "a", "guided_regex": "("}, "guided_regex"),
        ("/v1/completions", {"prompt": "a", "structured_outputs": {"grammar": "x"}}, "structured_outputs.grammar"),
        ("/v1/chat/completions", {"messages": [USER], "guided_json": SCHEMA}, "guided_json"),
        ("/v1/responses", {"input": LONG}, "input"),
        ("/v1/responses", {"input": "a", "max_output_tokens": 9000}, "input"),
        ("/v1/responses", {"input": [{"role": "user", "content": [IMAGE]}]}, "input"),
        ("/v1/decisions", {"input": LONG, "questions": [{"id": "a", "type": "yes_no", "question": "b"}]}, "input"),
        ("/v1/decisions", {"input": LONG, "questions": [{"type": "predicate", "instructions": "b"}]}, "input"),
        ("/v1/systemone", {"state": LONG, "questions": {"a": {"type": "noul", "instructions": "b"}}}, "state"),
        ("/v1/responses/input_tokens", {"input": [{"role": "user", "content": [IMAGE]}]}, "input"),
        ("/v1/responses", {"input": "a", "guided_grammar": "x"}, "guided_grammar"),
        (
            "/v1/responses",
            {"input": "a", "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}},
            "text.format",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_names_the_field_that_the_body_has(
    server: Any, path: str, body: dict[str, Any], param: str, stream: bool
) -> None:
    """`param` is a field of the API that was asked, also where the engine refuses."""
    pytest.importorskip("xgrammar", reason="structured output needs the extra `grammar`")
    # Decisions are not streamed, and refuse what is no field of theirs.
    streamed = {} if path in ("/v1/decisions", "/v1/systemone") else {"stream": stream}
    reply = httpx.post(f"{server.url}{path}", json={**body, **streamed}, timeout=120)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_cannot_be_run_is_a_400_wherever_it_stands(server: Any, stream: bool) -> None:
    """Also behind those that are answered at a time: the whole body is refused before any of it is answered."""
    prompts = ["a"] * 30 + [LONG] + ["b"] * 9
    body = {"prompt": prompts, "max_tokens": 200, "ignore_eos": True, "stream": stream}
    reply = httpx.post(f"{server.url}/v1/completions", json=body, timeout=120)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")
    until(lambda: not server.health()["busy"])


@pytest.mark.requirement("T-345")
def test_a_stored_conversation_goes_on_as_the_chat_does(server: Any) -> None:
    """The turn behind `previous_response_id` has the prompt that a chat client would send."""
    (first,) = told(server.url, "/v1/responses", BODIES["/v1/responses"])
    answer = first["output"][0]["content"][0]["text"]
    more = {"input": "And a fourth?", "previous_response_id": first["id"], "max_output_tokens": 4, "temperature": 0}
    (second,) = told(server.url, "/v1/responses", more)
    history = [USER, {"role": "assistant", "content": answer}, {"role": "user", "content": "And a fourth?"}]
    (chat,) = told(server.url, "/v1/chat/completions", {"messages": history, "max_tokens": 4, "temperature": 0})
    assert second["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]
    assert second["tensorfold"]["token_sha"] == chat["tensorfold"]["token_sha"]


@pytest.mark.requirement("T-047", "T-068", "Y-054", "Y-081", "Y-082")
def test_decisions_are_read_from_the_models_own_distribution(start: Any) -> None:
    """All shapes work on a model that chats; the chunks of a common input are computed once for all questions."""
    url = start("--context", "2048", "--prefill-chunk", "256").url
    given = "The parcel arrived broken and I want my money back. " * 40
    kinds = ["billing", "praise"]
    keyed = {
        "input": given,
        "questions": [
            {"id": "kind", "type": "choice", "question": "Which?", "options": [{"name": name} for name in kinds]},
            {"id": "anger", "type": "score", "question": "How angry?", "levels": ["calm", "angry", "furious"]},
            {"id": "spam", "type": "yes_no", "question": "It is an advertisement."},
        ],
    }
    (decided,) = told(url, "/v1/decisions", keyed)
    for answer in decided["answers"].values():
        assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-6)
        assert 0 < answer["label_mass"] <= 1 + 1e-9
    assert decided["usage"]["completion_tokens"] == 0
    ordered = {
        "input": f"Dear shop! {given}",
        "questions": [
            {"type": "choice", "instructions": "Which?", "choices": [{"value": name} for name in kinds]},
            {"type": "predicate", "instructions": "It is an advertisement."},
            {"type": "score", "instructions": "How angry?", "levels": [{"label": "calm"}, {"label": "angry"}]},
        ],
    }
    (decided,) = told(url, "/v1/decisions", ordered)
    assert [answer["type"] for answer in decided["answers"]] == ["choice", "predicate", "score"]
    usage = decided["usage"]
    assert usage["output_tokens"] == 3
    whole_chunks = usage["input_tokens"] // 3 // 256
    assert usage["input_tokens_details"]["cached_tokens"] >= 2 * whole_chunks * 256 > 0
    questions = {"ad": {"type": "noul", "instructions": "Is it an advertisement?"}}
    (decided,) = told(url, "/v1/systemone", {"state": given, "questions": questions})
    assert 0 <= decided["answers"]["ad"]["noul"] <= 1
    assert decided["diagnostics"]["ad"]["label_mass"] > 0


@pytest.mark.requirement("Y-081")
@pytest.mark.parametrize("words", [30, 300])
@pytest.mark.parametrize("path", ["keyed", "ordered", "systemone"])
def test_the_input_of_many_questions_is_computed_once(server: Any, path: str, words: int) -> None:
    """However short it is: nobody's input is as long as a chunk of the prompt, and fits the chunks' ends."""

    def computed() -> int:
        count: int = httpx.get(f"{server.url}/health").json()["prompt_tokens_computed_total"]
        return count

    def counted(text: str) -> int:
        count: int = httpx.post(f"{server.url}/tokenize", json={"prompt": text}).json()["count"]
        return count

    given = f"For {path}: " + "it arrived broken " * (words // 3)
    asked = [f"Is it about matter number {number}?" for number in range(8)]
    before = computed()
    match path:
        case "keyed":
            questions: Any = [{"id": each, "type": "yes_no", "question": each} for each in asked]
            told(server.url, "/v1/decisions", {"input": given, "questions": questions})
        case "ordered":
            questions = [{"type": "predicate", "instructions": each} for each in asked]
            told(server.url, "/v1/decisions", {"input": given, "questions": questions})
        case _:
            questions = {each: {"type": "noul", "instructions": each} for each in asked}
            told(server.url, "/v1/systemone", {"state": given, "questions": questions})
    # What stands around the input is short, but for the system text in front of it.
    assert computed() - before < 1.2 * counted(given) + 50 * len(asked)


@pytest.mark.requirement("T-346")
@pytest.mark.parametrize("stream", [False, True])
def test_a_stored_conversation_goes_on_from_what_was_computed_of_it(server: Any, stream: bool) -> None:
    """The next turn finds the whole of the one before in the cache, its reply included, as a chat's next turn does."""
    given = f"{stream}: " + "The parcel arrived broken and I want my money back. " * 20
    body = {"max_output_tokens": LIMIT, "temperature": 0, "stream": stream}

    def responded(**fields: Any) -> dict[str, Any]:
        *_, last = told(server.url, "/v1/responses", {**body, **fields})
        response: dict[str, Any] = last.get("response", last)
        return response

    first = responded(input=given)
    second = responded(input="What shall I do?", previous_response_id=first["id"])
    cached = second["usage"]["input_tokens_details"]["cached_tokens"]
    assert cached <= first["usage"]["total_tokens"] < second["usage"]["input_tokens"]
    # Where a prompt's chunks have other bits than a reply's rows, a short one is computed anew, by whatever API.
    assert (cached >= first["usage"]["input_tokens"]) == _chat_goes_on(server.url, f"Chat, {given}")
    history = [
        {"role": "user", "content": given},
        {"role": "assistant", "content": first["output"][0]["content"][0]["text"]},
        {"role": "user", "content": "What shall I do?"},
    ]
    (chat,) = told(server.url, "/v1/chat/completions", {"messages": history, "max_tokens": LIMIT, "temperature": 0})
    assert chat["tensorfold"]["token_sha"] == second["tensorfold"]["token_sha"]


def _chat_goes_on(url: str, given: str) -> bool:
    """Whether a chat's second turn finds the whole prompt of its first one in the cache."""
    limits = {"max_tokens": LIMIT, "temperature": 0}
    history = [{"role": "user", "content": given}]
    (first,) = told(url, "/v1/chat/completions", {"messages": history, **limits})
    history += [first["choices"][0]["message"], {"role": "user", "content": "What shall I do?"}]
    (second,) = told(url, "/v1/chat/completions", {"messages": history, **limits})
    cached: int = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    prompt: int = first["usage"]["prompt_tokens"]
    return cached >= prompt

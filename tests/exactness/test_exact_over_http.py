"""The whole path, from the SDK to the engine's rows and back: the same reply and the same numbers by every way."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tensorfold.engine.copies import CopyDrafting
from tensorfold.engine.engine import LocalEngine
from tensorfold.http import create_app
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.scripted import Script, Stall
from tensorfold.testing.serving import served
from tensorfold.testing.toy_engine import toy_engine
from tensorfold.testing.toy_tokenizer import ToyTokenizer
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_openai import openai_dialect

TOKENIZER = ToyTokenizer()
FACE = "😊 é, and a long sentence that is said twice. "
ASKED: list[Any] = [{"role": "user", "content": "one emoji, please"}]
HALFWAY = Stall()
SCRIPTS = (
    Script(tuple(b"user: one emoji, please\nassistant: "), tuple((FACE * 2).encode())),
    Script(tuple(b"Say it: "), tuple((FACE * 2).encode())),
    Script(tuple(b"Stop in the middle: "), tuple(FACE.encode()), at={30: HALFWAY}),
)


@pytest.fixture(scope="module")
def engine() -> LocalEngine:
    return toy_engine(SCRIPTS, tokenizer=TOKENIZER, drafting=CopyDrafting(), equal=False)


@pytest.fixture(scope="module")
def url(engine: LocalEngine) -> Iterator[str]:
    model = dataclasses.replace(MODEL, window=engine.window, vocabulary=TOKENIZER.size)
    engine.start()
    with served(create_app(engine=engine, model=model, dialects=[openai_dialect(), anthropic_dialect()])) as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=30) as sdk:
        yield sdk


def chat(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(model="m", messages=ASKED, temperature=0, **fields)


# ---- log-probabilities of a chat --------------------------------------------------------------------------


@pytest.mark.requirement("T-112", "T-114", "T-116", "T-117")
def test_every_visible_token_of_a_chat_has_its_own_bytes_and_alternatives(client: openai.OpenAI) -> None:
    """LP-01, LP-03: the bytes of all tokens join to the content; greedy, each is its own likeliest alternative."""
    choice = chat(client, logprobs=True, top_logprobs=3, max_tokens=len(FACE.encode())).choices[0]
    content = choice.logprobs.content
    assert bytes(byte for token in content for byte in token.bytes).decode() == choice.message.content == FACE
    assert len(content) == len(FACE.encode())
    for token in content:
        assert len(token.top_logprobs) == 3
        first = token.top_logprobs[0]
        assert (first.bytes, first.logprob) == (token.bytes, token.logprob)
        assert token.logprob <= 0
    assert content[0].bytes == [0xF0], "part of a character keeps its byte"


@pytest.mark.requirement("T-112", "T-289")
def test_a_chats_numbers_are_the_same_streamed_or_not_drafted_or_not(client: openai.OpenAI) -> None:
    """Token by token, with every alternative."""
    whole = [chat(client, logprobs=True, top_logprobs=2, extra_body={"draft": draft}) for draft in (True, False)]
    assert whole[0].choices[0].to_dict() == whole[1].choices[0].to_dict()
    assert whole[0].tensorfold["token_sha"] == whole[1].tensorfold["token_sha"]
    assert whole[0].timings["draft_n_accepted"] > 0 and "draft_n" not in whole[1].timings
    for draft in (True, False):
        content: list[Any] = []
        text = ""
        for chunk in chat(client, logprobs=True, top_logprobs=2, stream=True, extra_body={"draft": draft}):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                content += [] if choice.logprobs is None else choice.logprobs.content
        assert text == whole[0].choices[0].message.content == FACE * 2
        assert [each.to_dict() for each in content] == [each.to_dict() for each in whole[0].choices[0].logprobs.content]


def test_without_being_asked_for_there_are_none(client: openai.OpenAI) -> None:
    for fields in ({}, {"logprobs": False}, {"logprobs": False, "top_logprobs": 0}):
        assert chat(client, max_tokens=2, **fields).choices[0].logprobs is None


@pytest.mark.requirement("T-112", "T-118")
@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("chat/completions", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ("chat/completions", {"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ("chat/completions", {"top_logprobs": 3}, "top_logprobs"),
        ("completions", {"logprobs": 21}, "logprobs"),
        ("completions", {"logprobs": -1}, "logprobs"),
        ("completions", {"logprobs": True}, "logprobs"),
    ],
)
def test_what_cannot_be_given_is_a_400(url: str, path: str, fields: dict[str, Any], param: str) -> None:
    body = {"model": "m", "messages": ASKED} if path.startswith("chat") else {"model": "m", "prompt": "x"}
    answer = httpx.post(f"{url}/v1/{path}", json={**body, **fields})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


# ---- completions ------------------------------------------------------------------------------------------


def complete(client: openai.OpenAI, **fields: Any) -> Any:
    return client.completions.create(model="m", prompt="Say it: ", temperature=0, **{"max_tokens": 40, **fields})


def test_completions_have_the_older_shape(client: openai.OpenAI) -> None:
    """Texts, log-probabilities, the likeliest tokens by text, and where in the text each begins."""
    choice = complete(client, logprobs=2).choices[0]
    logprobs = choice.logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 40
    assert logprobs.tokens[:6] == ["bytes:\\xf0", "bytes:\\x9f", "bytes:\\x98", "bytes:\\x8a", " ", "bytes:\\xc3"]
    assert logprobs.text_offset[:8] == [0, 0, 0, 0, 1, 2, 2, 3]
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert top[token] == logprob
        assert 2 <= len(top) <= 3


def test_an_echo_has_the_prompts_numbers_too(client: openai.OpenAI) -> None:
    """The first token has none; offsets count from the prompt's first character; streamed or not."""
    whole = complete(client, logprobs=1, echo=True, max_tokens=5).choices[0]
    assert whole.text == "Say it: 😊 "
    assert whole.logprobs.tokens[:4] == ["S", "a", "y", " "]
    assert whole.logprobs.token_logprobs[0] is None and whole.logprobs.top_logprobs[0] is None
    assert whole.logprobs.text_offset[:9] == list(range(9))
    parts: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    text = ""
    for chunk in complete(client, logprobs=1, echo=True, max_tokens=5, stream=True):
        for choice in chunk.choices:
            text += choice.text
            for name, part in parts.items():
                part += [] if choice.logprobs is None else getattr(choice.logprobs, name)
    assert text == whole.text
    assert parts == {name: getattr(whole.logprobs, name) for name in parts}


def test_an_echo_without_numbers_is_text_alone(client: openai.OpenAI) -> None:
    choice = complete(client, echo=True, max_tokens=5).choices[0]
    assert choice.text.startswith("Say it: ") and choice.logprobs is None


# ---- usage and health -------------------------------------------------------------------------------------


@pytest.mark.requirement("T-275", "T-278", "T-279", "T-102")
def test_usage_tells_what_came_from_the_cache_and_what_was_drafted(client: openai.OpenAI) -> None:
    """`draft: false` is the serial reference: the same hash, no drafts."""
    replies = [chat(client, extra_body={"draft": draft}) for draft in (True, True, False)]
    assert replies[1].usage.prompt_tokens_details.cached_tokens == 32
    assert len({reply.tensorfold["token_sha"] for reply in replies}) == 1
    timings = replies[0].timings
    assert timings["draft_n"] >= timings["draft_n_accepted"] > 0
    assert timings["predicted_per_second"] > 0 and timings["prompt_ms"] > 0
    assert "draft_n" not in replies[2].timings


@pytest.mark.requirement("T-278", "T-279")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("draft", [False, True])
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": ASKED}),
        ("/v1/chat/completions", {"messages": ASKED, "n": 2}),
        ("/v1/completions", {"prompt": "Say it: ", "max_tokens": 90}),
        ("/v1/responses", {"input": ASKED}),
        ("/v1/messages", {"messages": ASKED}),
    ],
)
def test_every_reply_tells_how_fast_it_was(
    url: str, path: str, fields: dict[str, Any], draft: bool, stream: bool
) -> None:
    """Decode rate, time to the first token and drafts, in the `tensorfold` block of every API, also of several replies."""
    answered = httpx.post(
        f"{url}{path}", json={**fields, "temperature": 0, "draft": draft, "stream": stream}, timeout=30
    )
    (found,) = re.findall(r'"stats":(\{[^}]*\})', answered.text)
    stats = json.loads(found)
    assert stats["time_to_first_token_ms"] > 0 and stats["tokens_per_second"] > 0
    assert (stats["drafted_tokens"] > 0) is draft
    assert 0 <= stats["accepted_tokens"] <= stats["drafted_tokens"]


@pytest.mark.parametrize("draft", [True, False])
def test_usage_so_far_counts_tokens_and_not_events(client: openai.OpenAI, draft: bool) -> None:
    """With `continuous_usage_stats` each event tells the tokens up to it, however many it joins; the last is exact."""
    text = ""
    usages: list[Any] = []
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    for chunk in chat(client, stream=True, stream_options=options, max_tokens=60, extra_body={"draft": draft}):
        usages.append(chunk.usage)
        for choice in chunk.choices:
            text += choice.delta.content or ""
        if chunk.choices and chunk.choices[0].delta.content:
            # Every token is a byte, and one that completes no character adds no text.
            assert chunk.usage.completion_tokens == len(text.encode())
    assert "😊" in text and len(usages) > 2
    counts = [usage.completion_tokens for usage in usages]
    assert counts == sorted(counts) and counts[-1] == 60


@pytest.mark.requirement("T-280", "T-281", "T-282", "T-283", "T-284", "T-285", "T-286", "T-287")
def test_health_counts_what_a_poller_makes_rates_of(client: openai.OpenAI, url: str, engine: LocalEngine) -> None:
    """Totals move by what a request took when it ends; its tokens while they stream."""
    before = httpx.get(f"{url}/health").json()
    reply = chat(client)
    after = httpx.get(f"{url}/health").json()
    grown = {name: after[name] - before[name] for name in after if name.endswith("_total")}
    assert grown["requests_total"] == 1
    assert grown["completion_tokens_total"] == reply.usage.completion_tokens
    assert grown["prompt_tokens_total"] == reply.usage.prompt_tokens
    assert grown["cached_tokens_total"] == reply.usage.prompt_tokens_details.cached_tokens
    assert grown["drafted_total"] == reply.timings["draft_n"]
    assert grown["accepted_total"] == reply.timings["draft_n_accepted"]
    assert grown["rounds_total"] > 0
    assert grown["prefill_seconds_total"] > 0 and grown["decode_seconds_total"] > 0
    assert (after["busy"], after["requests_running"]) == (False, 0)
    assert after["streams"] == {"decoding": 0, "prefilling": 0, "maximum": 4}
    assert after["context_length"] == engine.window


@pytest.mark.requirement("T-281")
def test_tokens_of_a_running_reply_are_counted_while_they_stream(url: str) -> None:
    """Before its end the total has moved."""
    before = httpx.get(f"{url}/health").json()["completion_tokens_total"]
    body = {"model": "m", "prompt": "Stop in the middle: ", "max_tokens": 40, "stream": True, "draft": False}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=30) as stream:
        try:
            lines = stream.iter_lines()
            assert next(lines)
            assert HALFWAY.entered.wait(30)
            during = httpx.get(f"{url}/health").json()
        finally:
            HALFWAY.release.set()
    assert during["busy"] and during["completion_tokens_total"] > before

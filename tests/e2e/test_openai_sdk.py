"""The real OpenAI SDK, strict about every answer, against a real model."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Name three colours of the rainbow."}]


def sha(answer: Any) -> str:
    """What the reply's tokens hash to: the server's own word, beside OpenAI's fields."""
    extra = cast("dict[str, Any]", answer.model_extra)
    return str(extra["tensorfold"]["token_sha"])


def joined(chunks: Iterable[Any]) -> tuple[str, Any]:
    """A stream's text, and its last chunk."""
    every = list(chunks)
    text = "".join(
        (choice.delta.content or "") if hasattr(choice, "delta") else choice.text
        for chunk in every
        for choice in chunk.choices
    )
    return text, every[-1]


@pytest.mark.requirement("T-032", "T-033")
def test_the_served_model_and_its_alias_are_listed(client: openai.OpenAI) -> None:
    """`GET /v1/models` lists the served model's ID and every alias."""
    ids = [model.id for model in client.models.list()]
    assert ids == ["SmolLM2-135M-Instruct.Q4_1", "an-alias"]
    assert client.models.retrieve("an-alias").id == "an-alias"


@pytest.mark.requirement("Y-001", "T-037", "T-096", "T-271", "T-274")
@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.8, "seed": 7}])
def test_a_streamed_chat_is_the_chat_that_is_not_streamed(
    client: openai.OpenAI, server: Any, sampling: dict[str, Any]
) -> None:
    """A chat through the real SDK gives the same text, usage and tokens, streamed and whole."""
    whole = client.chat.completions.create(model="any", messages=QUESTION, max_tokens=12, **sampling)
    stream = client.chat.completions.create(
        model="any", messages=QUESTION, max_tokens=12, stream=True, stream_options={"include_usage": True}, **sampling
    )
    text, last = joined(stream)
    assert text == whole.choices[0].message.content
    assert text
    assert last.choices == []
    assert last.usage == whole.usage
    assert whole.usage is not None
    assert whole.usage.completion_tokens <= 12
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert sha(last) == sha(whole)
    assert whole.model == last.model == "SmolLM2-135M-Instruct.Q4_1"


@pytest.mark.requirement("T-038", "Y-052")
def test_a_streamed_completion_is_the_completion_that_is_not_streamed(
    client: openai.OpenAI, lax: openai.OpenAI
) -> None:
    """A raw text is continued, without a template, to the same text streamed and whole."""
    prompt = "The capital of France is"
    whole = client.completions.create(
        model="any", prompt=prompt, max_tokens=8, temperature=0, extra_body={"min_p": 0.05}
    )
    text, last = joined(
        lax.completions.create(
            model="any", prompt=prompt, max_tokens=8, temperature=0, stream=True, extra_body={"min_p": 0.05}
        )
    )
    assert text == whole.choices[0].text
    assert "Paris" in text
    assert sha(last) == sha(whole)
    assert last.usage == whole.usage


@pytest.mark.requirement("T-039", "T-050")
def test_a_prompt_of_token_ids_is_run_as_given(client: openai.OpenAI) -> None:
    """A list of token IDs gives the reply of the text that they spell."""
    # "The capital of France is" in SmolLM2's vocabulary.
    ids = [504, 3575, 282, 4649, 314]
    by_ids = client.completions.create(model="any", prompt=ids, max_tokens=8, temperature=0)
    by_text = client.completions.create(model="any", prompt="The capital of France is", max_tokens=8, temperature=0)
    assert by_ids.usage is not None
    assert by_ids.usage.prompt_tokens == len(ids)
    assert (by_ids.choices[0].text, sha(by_ids)) == (by_text.choices[0].text, sha(by_text))


def test_eight_requests_at_once_are_each_as_alone(client: openai.OpenAI) -> None:
    """Replies beside others have the tokens that they have alone, greedy and sampled, long prompts and short ones."""
    animals = ["a cat", "a dog", "an owl", "a whale", "an ant", "a crow", "a bear", "a newt"]

    def ask(number: int) -> str:
        answer = client.chat.completions.create(
            model="any",
            messages=[{"role": "user", "content": f"Write about {animals[number]}. " * (1 + 6 * (number % 3))}],
            max_tokens=6 + number,
            temperature=number % 2,
            seed=number,
        )
        return sha(answer)

    alone = [ask(number) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, range(8)))
    assert together == alone
    assert len(set(alone)) == 8


@pytest.mark.requirement("T-094")
def test_a_seed_decides_a_sampled_reply(client: openai.OpenAI) -> None:
    """The same seed gives the same reply, another seed another."""

    def ask(seed: int) -> str:
        return sha(
            client.completions.create(model="any", prompt="Once upon a time", max_tokens=8, temperature=1.0, seed=seed)
        )

    assert ask(1) == ask(1)
    assert ask(1) != ask(2)


@pytest.mark.requirement("T-107")
def test_a_reply_ends_at_a_stop_text_and_leaves_it_out(client: openai.OpenAI, lax: openai.OpenAI) -> None:
    """The reply ends at a stop text, which is left out, streamed and whole; the reason is `stop`."""
    prompt = "1, 2, 3, 4, 5,"
    free = client.completions.create(model="any", prompt=prompt, max_tokens=12, temperature=0)
    stop = free.choices[0].text.strip()[3:6]
    expected = free.choices[0].text.partition(stop)[0]
    whole = client.completions.create(model="any", prompt=prompt, max_tokens=12, temperature=0, stop=[stop, "zebra"])
    text, last = joined(
        lax.completions.create(model="any", prompt=prompt, max_tokens=12, temperature=0, stop=stop, stream=True)
    )
    assert whole.choices[0].text == text == expected
    assert whole.choices[0].finish_reason == last.choices[0].finish_reason == "stop"


@pytest.mark.requirement("T-247", "T-251", "T-252", "T-253", "T-267")
def test_a_reply_that_does_not_fit_the_window_is_refused_before_it_begins(client: openai.OpenAI) -> None:
    """A prompt and reply limit past the window are a `context_length_exceeded` with counts, streamed or not."""
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as chat:
            client.chat.completions.create(model="any", messages=QUESTION, max_tokens=1020, stream=stream)
        assert (chat.value.code, chat.value.param) == ("context_length_exceeded", "messages")
        assert "This server's maximum context length is 1024 tokens" in chat.value.message
    with pytest.raises(openai.BadRequestError) as completion:
        client.completions.create(model="any", prompt="word " * 1100, max_tokens=1)
    assert (completion.value.code, completion.value.param) == ("context_length_exceeded", "prompt")
    with pytest.raises(openai.BadRequestError) as response:
        client.responses.create(model="any", input="word", max_output_tokens=1020)
    assert (response.value.code, response.value.param) == ("context_length_exceeded", "input")
    assert response.value.body["message"].startswith("This server's maximum context length is 1024 tokens")  # type: ignore[index]


@pytest.mark.requirement("T-157")
def test_a_client_that_goes_away_frees_its_lane(lax: openai.OpenAI, server: Any) -> None:
    """A disconnect ends its request, in the middle of a stream and of a whole reply that nobody reads."""
    stream = lax.completions.create(
        model="any", prompt="Count:", max_tokens=900, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    assert server.health()["requests_running"] == 1
    stream.close()
    wait_until_idle(server)
    body = {"prompt": "Count:", "max_tokens": 900, "ignore_eos": True}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/v1/completions", json=body, timeout=0.5)
    wait_until_idle(server)


def wait_until_idle(server: Any) -> None:
    """Until nothing runs; a round of the reply may have to end first."""
    end = time.monotonic() + 10
    while server.health()["busy"] and time.monotonic() < end:
        time.sleep(0.05)
    assert server.health()["requests_running"] == 0


@pytest.mark.requirement("T-034", "T-296", "T-036")
def test_health_and_metrics_tell_of_the_work(client: openai.OpenAI, server: Any) -> None:
    """`/health` counts requests, and both metrics routes say the same in Prometheus text."""
    client.completions.create(model="any", prompt="Hello", max_tokens=1)
    health = server.health()
    assert (health["status"], health["context_length"]) == ("ok", 1024)
    assert cast("int", health["requests_total"]) >= 1
    text = httpx.get(f"{server.url}/metrics").text
    also = httpx.get(f"{server.url}/v1/metrics").text
    pattern = r"^tensorfold:generation_tokens_total (\S+)$"
    found = [re.search(pattern, page, re.MULTILINE) for page in (text, also)]
    assert found[0] is not None
    assert found[1] is not None
    assert float(found[0][1]) == float(found[1][1]) >= 1


def test_a_bad_body_is_refused_and_the_next_request_is_served(client: openai.OpenAI) -> None:
    """A field of a wrong type is a 400 that names it, and harms nobody."""
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="any", messages=QUESTION, extra_body={"temperature": True})
    assert caught.value.param == "temperature"
    assert client.completions.create(model="any", prompt="Hello", max_tokens=1).choices

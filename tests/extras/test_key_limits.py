"""What one key may take, in a minute and at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tensorfold.contracts.observe import Observer, Outcome
from tensorfold.contracts.settings import PluginSettings
from tensorfold.errors import ConfigError, Rejected
from tensorfold.http import create_app
from tensorfold.ir import Request, TextPrompt, Timings, Usage
from tensorfold.plugins import Plugins, Wanted
from tensorfold.testing.asgi import ask
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scoring import ScoringEngine
from tensorfold.testing.scripted_engine import ScriptedEngine
from tensorfold.testing.toy_tokenizer import ToyTokenizer
from tensorfold_auth_keys.source import KeySource
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_decisions import decisions_dialect
from tensorfold_dialect_openai import openai_dialect
from tensorfold_extra_limits import tensorfold_request_filters, tensorfold_settings
from tensorfold_extra_limits.limits import KeyLimits, Limit


class Clock:
    """Seconds that stand still until they are moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def request(id: str = "r", principal: str | None = "alice") -> Request:
    return Request(id=id, prompt=TextPrompt("x"), principal=principal)


def ended(tokens: int) -> Outcome:
    return Outcome(200, "end", Usage(tokens, 0), Timings(), 1.0, 0.5)


def refusal(limits: KeyLimits, asked: Request | None = None) -> Rejected:
    with pytest.raises(Rejected) as caught:
        limits.apply(asked or request())
    return caught.value


def test_a_minutes_requests_may_come_at_once_and_then_as_time_allows() -> None:
    clock = Clock()
    limits = KeyLimits(Limit(requests_per_minute=3), clock=clock)
    for _ in range(3):
        limits.apply(request())
    told = refusal(limits)
    assert (told.status, told.code, told.retry_after) == (429, "rate_limit_exceeded", 20.0)
    assert "3 requests a minute" in told.message
    limits.apply(request(principal="bob"))
    clock.now += 20.0
    limits.apply(request())
    refusal(limits)
    clock.now += 1e6
    for _ in range(3):
        limits.apply(request())
    refusal(limits)


def test_less_than_one_request_a_minute_is_one_now_and_then() -> None:
    clock = Clock()
    limits = KeyLimits(Limit(requests_per_minute=0.5), clock=clock)
    limits.apply(request())
    assert refusal(limits).retry_after == 60.0  # SDKs stop retrying at larger values
    clock.now += 120.0
    limits.apply(request())


def test_tokens_are_counted_when_they_are_known() -> None:
    clock = Clock()
    limits = KeyLimits(Limit(tokens_per_minute=60), clock=clock)
    limits.apply(request())
    limits.started(request(), "/x")
    limits.ended(request(), "/x", ended(90))
    told = refusal(limits)
    assert told.retry_after == 31.0
    assert "60 tokens a minute" in told.message
    clock.now += 31.0
    limits.apply(request())


def test_requests_at_once_are_counted_from_start_to_end() -> None:
    limits = KeyLimits(Limit(at_once=2))
    for id in ("a", "b"):
        limits.apply(request(id))
        limits.started(request(id), "/x")
    assert "2 requests at once" in refusal(limits).message
    limits.apply(request("c", principal="bob"))
    limits.ended(request("a"), "/x", Outcome(500, "server_error", None, None, 1.0, None))
    limits.apply(request("c"))


def test_without_keys_all_callers_are_one_and_some_labels_are_free() -> None:
    limits = KeyLimits(Limit(requests_per_minute=1), unlimited=["root"])
    limits.apply(request(principal=None))
    refusal(limits, request(principal=None))
    for _ in range(10):
        limits.apply(request(principal="root"))
        limits.started(request(principal="root"), "/x")
        limits.ended(request(principal="root"), "/x", ended(10**9))


def test_no_filter_is_there_until_a_limit_is_set_and_a_negative_one_is_refused() -> None:
    (table,) = tensorfold_settings()
    defaults = {setting.name: setting.default for setting in table.settings}
    assert list(tensorfold_request_filters(PluginSettings({table.name: defaults}))) == []
    (made,) = tensorfold_request_filters(PluginSettings({table.name: {**defaults, "at_once": 1, "unlimited": ()}}))
    assert isinstance(made, Observer)
    with pytest.raises(ConfigError, match="may not be negative"):
        list(tensorfold_request_filters(PluginSettings({table.name: {**defaults, "at_once": -1}})))


def test_the_plugin_is_installed_and_its_flags_are_the_servers() -> None:
    flags = {each.flag for offered in Plugins(Wanted()).settings() for each in offered.value.settings}
    assert {"--key-requests-per-minute", "--key-tokens-per-minute", "--key-at-once"} <= flags


@pytest.fixture
def app() -> Iterator[Any]:
    """A server whose keys may ask twice."""
    made = create_app(
        engine=ScriptedEngine(MODEL, lambda request: reply_events(["ok"], request.choices)),
        model=MODEL,
        dialects=[openai_dialect(), anthropic_dialect()],
        auth=[KeySource(flags=["k", "l"])],
        filters=[KeyLimits(Limit(requests_per_minute=2, at_once=1))],
    )
    yield made
    made.close()


def test_the_refusal_has_the_dialects_envelope_and_says_when_to_come_back(app: Any) -> None:
    messages = [{"role": "user", "content": "hi"}]
    chat = json.dumps({"messages": messages}).encode()
    told = json.dumps({"model": "m", "messages": messages, "max_tokens": 5}).encode()
    for _ in range(2):
        assert ask(app, "POST", "/v1/chat/completions", body=chat, headers={"x-api-key": "k"}).status == 200
    refused = ask(app, "POST", "/v1/chat/completions", body=chat, headers={"x-api-key": "k"})
    assert (refused.status, json.loads(refused.body)["error"]["type"]) == (429, "rate_limit_error")
    assert int(refused.headers["retry-after"]) in range(1, 31)
    other = ask(app, "POST", "/v1/messages", body=told, headers={"x-api-key": "k"})
    assert (other.status, json.loads(other.body)["error"]["type"]) == (429, "rate_limit_error")
    assert json.loads(other.body)["type"] == "error"
    assert ask(app, "POST", "/v1/messages", body=told, headers={"x-api-key": "l"}).status == 200


def test_decisions_cost_the_tokens_of_their_prompts() -> None:
    """Each question's; the answer to the next one comes when they are paid."""
    made = create_app(
        engine=ScoringEngine(MODEL, None, lambda prompt: dict.fromkeys(range(256), 1 / 256)),
        model=MODEL,
        dialects=[decisions_dialect()],
        filters=[KeyLimits(Limit(tokens_per_minute=3), clock=Clock())],
        tokenizer=ToyTokenizer(),
    )
    questions = [{"id": id, "type": "score", "question": "?", "levels": ["low", "high"]} for id in ("a", "b", "c")]
    body = json.dumps({"input": "x", "questions": questions}).encode()
    answers = [ask(made, "POST", "/v1/decisions", body=body) for _ in range(2)]
    metrics = ask(made, "GET", "/metrics").body.decode()
    made.close()
    assert [answer.status for answer in answers] == [200, 429], answers
    assert "3 tokens a minute" in answers[1].body.decode()
    assert "tensorfold:prompt_tokens_total 3.0" in metrics

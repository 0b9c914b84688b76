"""What is only counted, shown or scored passes the same filters as what is answered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tensorfold.contracts.auth import AuthSource
from tensorfold.contracts.observe import Observer, Outcome
from tensorfold.contracts.policy import RequestFilter
from tensorfold.errors import GenerationFailed, Rejected
from tensorfold.http import create_app
from tensorfold.ir import Chat, LabelScore, Message, Request, Score, Scored, SpellingScore, Text, Timings, Usage
from tensorfold.testing.asgi import Answered, ask
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scripted_engine import ScriptedEngine
from tensorfold.testing.toy_tokenizer import ToyTokenizer
from tensorfold_auth_keys.source import KeySource
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_decisions import decisions_dialect
from tensorfold_dialect_llamacpp import llamacpp_dialect
from tensorfold_dialect_vllm import vllm_dialect

USER: dict[str, Any] = {"role": "user", "content": "hi"}
OPTIONS = [{"name": "yes"}, {"name": "no"}]
QUESTIONS = [{"id": id, "type": "choice", "question": f"{id}?", "options": OPTIONS} for id in ("a", "b", "c")]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages/count_tokens": {"messages": [USER]},
    "/tokenize": {"messages": [USER]},
    "/v1/tokenize": {"prompt": "hi"},
    "/apply-template": {"messages": [USER]},
    "/v1/decisions": {"input": "x", "questions": QUESTIONS[:1]},
    "/v1/systemone": {"state": "x", "questions": {"a": {"type": "noul", "instructions": "a?"}}},
}


class ScoringScript(ScriptedEngine):
    """Scores too: every label alike."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__(MODEL, lambda request: reply_events(["x"]))
        self.scores: list[Score] = []
        self._failure = failure

    async def score(self, request: Score) -> Scored:
        self.scores.append(request)
        if self._failure is not None:
            raise self._failure
        labels = tuple(
            LabelScore(tuple(SpellingScore((65,), (-1.0,)) for _ in each.spellings)) for each in request.labels
        )
        return Scored(labels, Usage(4, 0), Timings(), 65)


class Quota:
    """So many requests, and no more."""

    name = "quota"

    def __init__(self, most: int) -> None:
        self._left = most
        self.seen: list[Request] = []

    def apply(self, request: Request) -> Request:
        self.seen.append(request)
        if self._left == 0:
            raise Rejected(f"{request.principal} has asked often enough", status=429, retry_after=30)
        self._left -= 1
        return request


class Preset:
    """A system message for everybody."""

    name = "preset"

    def apply(self, request: Request) -> Request:
        if not isinstance(request.prompt, Chat):
            return request
        messages = (Message("system", (Text("wombat"),)), *request.prompt.messages)
        return msgspec.structs.replace(request, prompt=msgspec.structs.replace(request.prompt, messages=messages))


def asked(
    engine: ScriptedEngine,
    filters: Sequence[RequestFilter],
    path: str,
    body: dict[str, Any],
    *,
    auth: Sequence[AuthSource] = (),
    observers: Sequence[Observer] = (),
) -> Answered:
    dialects = [anthropic_dialect(), vllm_dialect(), llamacpp_dialect(), decisions_dialect()]
    # A yes is one token here, as it is in every real vocabulary.
    tokenizer = ToyTokenizer(words=["yes", "no"])
    app = create_app(
        engine=engine,
        model=MODEL,
        dialects=dialects,
        filters=filters,
        observers=observers,
        auth=auth,
        tokenizer=tokenizer,
    )
    try:
        return ask(app, "POST", path, body=json.dumps(body).encode(), headers={"x-api-key": "k"})
    finally:
        app.close()


@pytest.mark.parametrize("path", BODIES)
def test_an_inquiry_is_refused_by_a_filter_in_its_own_envelope(path: str) -> None:
    quota = Quota(0)
    answered = asked(ScoringScript(), [quota], path, BODIES[path], auth=[KeySource(flags=["k"])])
    assert (answered.status, answered.headers["retry-after"]) == (429, "30")
    assert "cli-1 has asked often enough" in json.loads(answered.body)["error"]["message"]
    (seen,) = quota.seen
    assert seen.principal == "cli-1"


def test_what_a_filter_changes_is_what_is_counted_and_shown() -> None:
    """Else a count would be that of another prompt than the reply's."""
    body = BODIES["/apply-template"]
    shown = json.loads(asked(ScoringScript(), [Preset()], "/apply-template", body).body)
    assert "wombat" in shown["prompt"]
    path = "/v1/messages/count_tokens"
    plain, preset = (
        json.loads(asked(ScoringScript(), filters, path, BODIES[path]).body)["input_tokens"]
        for filters in ([], [Preset()])
    )
    assert preset == plain + len("wombat")


def test_each_question_counts_once_and_is_scored_as_the_filters_left_it() -> None:
    """It is rendered before it is scored, which is one request."""
    engine, quota = ScoringScript(), Quota(3)
    answered = asked(
        engine,
        [Preset(), quota],
        "/v1/decisions",
        {"input": "x", "questions": QUESTIONS},
        auth=[KeySource(flags=["k"])],
    )
    assert answered.status == 200, answered.body
    assert len(quota.seen) == len(engine.scores) == 3
    for score in engine.scores:
        assert isinstance(score.prompt, Chat)
        assert score.prompt.messages[0] == Message("system", (Text("wombat"),))
        assert score.principal == "cli-1"


class Told:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.started_ids: list[str] = []
        self.outcomes: list[tuple[Request, str, Outcome]] = []

    def started(self, request: Request, endpoint: str) -> None:
        self.started_ids.append(request.id)

    def ended(self, request: Request, endpoint: str, outcome: Outcome) -> None:
        self.outcomes.append((request, endpoint, outcome))


@pytest.mark.parametrize("path", ["/v1/decisions", "/v1/systemone"])
def test_each_question_is_told_to_observers_with_its_tokens(path: str) -> None:
    """As a request of its own, like each prompt of a list."""
    told = Told()
    body = {**BODIES[path], **({"questions": QUESTIONS} if path == "/v1/decisions" else {})}
    answered = asked(ScoringScript(), [], path, body, auth=[KeySource(flags=["k"])], observers=[told])
    assert answered.status == 200, answered.body
    assert len(told.outcomes) == len(body["questions"])
    assert sorted(told.started_ids) == sorted(request.id for request, _, _ in told.outcomes)
    for request, endpoint, outcome in told.outcomes:
        assert (request.principal, endpoint) == ("cli-1", path)
        assert (outcome.status, outcome.reason, outcome.usage) == (200, "end", Usage(4, 0))
        assert outcome.first_token_seconds is None


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (Rejected("full", status=429), (429, "overloaded_error")),
        (GenerationFailed("broken"), (500, "server_error")),
        (RuntimeError("a fault"), (500, "server_error")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_question_that_fails_is_told_with_its_reason(failure: Exception, expected: tuple[int, str]) -> None:
    told = Told()
    assert asked(ScoringScript(failure), [], "/v1/decisions", BODIES["/v1/decisions"], observers=[told]).status >= 400
    ((_, _, outcome),) = told.outcomes
    assert (outcome.status, outcome.reason) == expected


def test_what_is_only_counted_or_shown_is_told_to_nobody() -> None:
    """It costs no tokens."""
    told = Told()
    for path in ("/v1/messages/count_tokens", "/tokenize", "/apply-template"):
        assert asked(ScoringScript(), [], path, BODIES[path], observers=[told]).status == 200
    assert told.outcomes == []

"""Filters and observers see every request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from tensorfold.contracts.observe import Outcome
from tensorfold.errors import GenerationFailed, InvalidRequest, PluginConflict, Rejected
from tensorfold.http.audience import Audience
from tensorfold.ir import Queued, Request, TextDelta
from tensorfold.testing.asgi import ask
from tensorfold.testing.scripted_engine import ScriptItem
from tensorfold_auth_keys.source import KeySource

Rig = Callable[..., Any]


class Renames:
    """A filter that leaves its name in the model's."""

    def __init__(self, name: str) -> None:
        self.name = name

    def apply(self, request: Request) -> Request:
        return msgspec.structs.replace(request, model=request.model + self.name)


class Refuses:
    """A quota that is used up."""

    name = "quota"

    def apply(self, request: Request) -> Request:
        raise Rejected(f"{request.principal} has used its tokens up", status=429, retry_after=30)


class Notes:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, Outcome | None]] = []

    def started(self, request: Request, endpoint: str) -> None:
        self.told.append(("started", endpoint, None))

    def ended(self, request: Request, endpoint: str, outcome: Outcome) -> None:
        self.told.append(("ended", endpoint, outcome))

    @property
    def outcomes(self) -> list[Outcome]:
        return [outcome for _, _, outcome in self.told if outcome is not None]


class Broken:
    """An observer with a bug."""

    def started(self, request: Request, endpoint: str) -> None:
        raise ValueError("a count went negative")

    def ended(self, request: Request, endpoint: str, outcome: Outcome) -> None:
        raise ValueError("a count went negative")


def post(made: Any, chat: dict[str, Any], **headers: str) -> Any:
    return ask(made.app, "POST", "/v1/chat/completions", body=json.dumps(chat).encode(), headers=headers)


def test_filters_change_requests_in_the_order_of_their_names(rig: Rig, chat: dict[str, Any]) -> None:
    made = rig(filters=[Renames("-b"), Renames("-a")])
    assert post(made, {**chat, "model": "m"}).status == 200
    assert made.engine.requests[0].model == "m-a-b"


def test_a_filter_refuses_before_anything_is_queued_and_knows_who_asks(rig: Rig, chat: dict[str, Any]) -> None:
    made = rig(filters=[Refuses()], auth=[KeySource(flags=["k"])])
    answered = post(made, chat, **{"x-api-key": "k"})
    assert (answered.status, answered.headers["retry-after"]) == (429, "30")
    assert b"cli-1 has used its tokens up" in answered.body
    assert made.engine.requests == []


def test_two_filters_with_one_name_stop_the_start() -> None:
    with pytest.raises(PluginConflict, match="same"):
        Audience([Renames("same"), Renames("same")], [])


def test_observers_are_told_of_start_and_outcome(rig: Rig, chat: dict[str, Any]) -> None:
    notes = Notes()
    assert post(rig(observers=[notes]), chat).status == 200
    assert [told[:2] for told in notes.told] == [("started", "/v1/chat/completions"), ("ended", "/v1/chat/completions")]
    (outcome,) = notes.outcomes
    assert (outcome.status, outcome.reason) == (200, "end")
    assert outcome.usage is not None
    assert outcome.usage.prompt_tokens == 3
    assert outcome.first_token_seconds is not None
    assert 0 <= outcome.first_token_seconds <= outcome.seconds


@pytest.mark.parametrize(
    ("item", "status", "reason"),
    [(Rejected("full", status=429), 429, "overloaded_error"), (GenerationFailed("broken"), 500, "server_error")],
)
def test_observers_are_told_of_refusals_and_failures(
    rig: Rig, chat: dict[str, Any], item: Any, status: int, reason: str
) -> None:
    def script(request: Request) -> Iterator[Any]:
        if status == 500:
            yield Queued(1)
            yield TextDelta(0, "x")
        yield item

    notes = Notes()
    assert post(rig(script, observers=[notes]), chat).status == status
    (outcome,) = notes.outcomes
    assert (outcome.status, outcome.reason, outcome.usage) == (status, reason, None)


def test_observers_are_told_once_of_each_request_of_a_refused_body(rig: Rig) -> None:
    def refuse_second(request: Request) -> Iterator[ScriptItem]:
        if request.id.endswith("-1"):
            yield InvalidRequest("too long")
        yield Queued(1)
        yield 10.0

    notes = Notes()
    made = rig(refuse_second, observers=[notes])
    assert ask(made.app, "POST", "/v1/completions", body=b'{"prompt": ["a", "b", "c"]}').status == 400
    assert [told[0] for told in notes.told] == ["started", "started", "ended", "ended"]
    assert sorted(outcome.status for outcome in notes.outcomes) == [400, 499]


@pytest.mark.parametrize("stream", [True, False])
def test_an_observer_that_raises_harms_no_reply(rig: Rig, chat: dict[str, Any], stream: bool) -> None:
    answered = post(rig(observers=[Broken()]), {**chat, "stream": stream})
    assert answered.status == 200
    assert (b"[DONE]" in answered.body) is stream


class Chats:
    """A filter that logs."""

    name = "chats"

    def apply(self, request: Request) -> Request:
        structlog.get_logger().info("filtered")
        return request


def test_what_is_logged_inside_a_request_carries_its_id_and_label(rig: Rig, chat: dict[str, Any]) -> None:
    made = rig(filters=[Chats()], auth=[KeySource(flags=["k"])])
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        post(made, chat, **{"x-api-key": "k", "x-request-id": "mine"})
        post(made, chat)
    inside, whole, refused = lines
    assert (inside["event"], inside["request_id"], inside["label"]) == ("filtered", "mine", "cli-1")
    assert (whole["event"], whole["request_id"], whole["status"]) == ("request", "mine", 200)
    assert refused["status"] == 401
    assert "label" not in refused or refused["label"] == ""

"""Many prompts in one body: they take turns, and ask no more of the engine's queue than it has."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tensorfold.contracts.observe import Outcome
from tensorfold.engine.policies import DefaultPolicy
from tensorfold.errors import InvalidRequest, Rejected, RequestError
from tensorfold.http import ServerSettings, create_app
from tensorfold.http.flight import AT_ONCE
from tensorfold.ir import Queued, Request
from tensorfold.testing.asgi import ask
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scripted_engine import ScriptItem
from tensorfold.testing.serving import served
from tensorfold.testing.toy_engine import toy_engine
from tensorfold.testing.waiting import until
from tensorfold_dialect_openai import openai_dialect

Rig = Callable[..., Any]


class Notes:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.started_ids: list[str] = []
        self.outcomes: list[Outcome] = []

    def started(self, request: Request, endpoint: str) -> None:
        self.started_ids.append(request.id)

    def ended(self, request: Request, endpoint: str, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


@pytest.mark.requirement("T-039")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("room", [1, 3, 100])
def test_prompts_of_one_body_wait_for_each_other_where_the_queue_has_no_room(rig: Rig, room: int, stream: bool) -> None:
    """Up to 128 prompts are served however small the queue is, 16 at most at a time; observers are told of each once."""
    made: Any
    most = 0

    def script(request: Request) -> Iterator[ScriptItem]:
        nonlocal most
        running = made.engine.status().running
        if running >= room:
            yield Rejected("full")
        most = max(most, running + 1)
        yield Queued(1)
        yield 0.001
        yield from reply_events([request.id.rpartition("-")[2]])

    notes = Notes()
    made = rig(script, observers=[notes])
    body = {"prompt": ["a"] * 40, "stream": stream}
    answered = ask(made.app, "POST", "/v1/completions", body=json.dumps(body).encode())
    assert answered.status == 200
    texts = [""] * 40
    lines = [line.removeprefix(b"data: ") for line in answered.body.splitlines()]
    for told in (json.loads(line) for line in lines if line.startswith(b"{")):
        for choice in told["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == [str(number) for number in range(40)]
    assert most == min(room, AT_ONCE)
    assert len(notes.started_ids) == len(notes.outcomes) == 40
    assert {outcome.status for outcome in notes.outcomes} == {200}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("error", "status"), [(InvalidRequest("too long"), 400), (ValueError("a bug"), 500)])
def test_a_prompt_that_is_refused_after_it_waited_ends_the_whole_body(
    rig: Rig, stream: bool, error: Exception, status: int
) -> None:
    """The others are cancelled, and no further one is submitted."""

    def script(request: Request) -> Iterator[ScriptItem]:
        if request.id.endswith("-20"):
            if not isinstance(error, RequestError):
                raise error
            yield error
        yield Queued(1)
        if int(request.id.rpartition("-")[2]) < 8:
            yield from reply_events(["x"])
        yield 10.0

    notes = Notes()
    made = rig(script, observers=[notes])
    body = {"prompt": ["a"] * 40, "stream": stream}
    answered = ask(made.app, "POST", "/v1/completions", body=json.dumps(body).encode())
    assert answered.status == (200 if stream else status)
    assert (b'"error"' in answered.body) and answered.body.endswith(b"[DONE]\n\n") is stream
    assert len(notes.started_ids) == len(notes.outcomes) == 21
    assert sorted({outcome.status for outcome in notes.outcomes}) == sorted({200, 499, status})


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("queue", [1, 64])
@pytest.mark.parametrize("bad", [3, 5, 6, 20, 39])
def test_what_can_never_be_run_is_refused_before_anything_is_answered(stream: bool, queue: int, bad: int) -> None:
    """A prompt's place in the body makes no difference to its caller; observers are told of each that was begun."""
    notes, engine = Notes(), toy_engine(window=24, lanes=4, policy=DefaultPolicy(queue=queue))
    engine.start()
    app = create_app(engine=engine, model=MODEL, dialects=[openai_dialect()], observers=[notes])
    prompts = ["a"] * bad + ["much too long for the window"] + ["b"] * (39 - bad)
    body = {"prompt": prompts, "stream": stream, "max_tokens": 4}
    with served(app, ServerSettings(port=0, drain_seconds=0.0)) as url:
        answered = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
        assert (answered.status_code, answered.json()["error"]["code"]) == (400, "context_length_exceeded")
        whole = httpx.post(f"{url}/v1/completions", json={**body, "prompt": ["a"] * 40}, timeout=60)
        assert whole.status_code == 200
    assert len(notes.started_ids) == len(notes.outcomes) == len(set(notes.started_ids))
    assert [outcome.status for outcome in notes.outcomes].count(200) >= 40
    assert [outcome.status for outcome in notes.outcomes].count(400) == 1


def test_a_client_that_leaves_while_prompts_wait_for_a_turn_leaves_nothing_behind(
    rig: Rig, connect: Callable[..., socket.socket]
) -> None:
    """None of them is begun any more."""

    def script(request: Request) -> Iterator[ScriptItem]:
        yield Queued(1)
        yield 1000.0

    notes = Notes()
    made = rig(script, observers=[notes])
    with made.serve() as client:
        connection = connect(client)
        data = json.dumps({"prompt": ["a"] * 40}).encode()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        until(lambda: len(made.engine.requests) == AT_ONCE)
        connection.close()
        until(lambda: made.app.active == 0)
        assert len(made.engine.requests) == len(made.engine.cancelled) == len(notes.outcomes) == AT_ONCE
        assert client.get("/health").json()["busy"] is False

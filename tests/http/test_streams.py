"""Streams over a real socket: what is sent when, what a failure looks like, how silence is filled."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tensorfold.errors import GenerationFailed, InvalidRequest, Rejected
from tensorfold.http import HttpSettings
from tensorfold.ir import Finished, Request, Stopped, TextDelta, Timings, Usage
from tensorfold.testing.asgi import ask
from tensorfold.testing.dialects import reply_events
from tensorfold.testing.scripted_engine import ScriptItem

Rig = Callable[..., Any]


def payloads(text: str) -> list[Any]:
    """The events of a stream; every line is blank, a comment, or `data:` with JSON or [DONE]."""
    events: list[Any] = []
    for line in text.split("\n"):
        if line.startswith("data: "):
            events.append(line[6:] if line == "data: [DONE]" else json.loads(line[6:]))
        else:
            assert line == "" or line.startswith(":"), line
    return events


def content(events: list[Any]) -> str:
    """The text of choice 0."""
    return "".join(
        choice["delta"].get("content") or ""
        for event in events[:-1]
        for choice in event.get("choices", ())
        if choice["index"] == 0
    )


def stream(client: httpx.Client, chat: dict[str, Any], **more: Any) -> httpx.Response:
    return client.post("/v1/chat/completions", json={**chat, "stream": True, **more})


@pytest.mark.requirement("T-096", "T-037")
def test_a_stream_is_server_sent_events_that_end_with_done(rig: Rig, chat: dict[str, Any]) -> None:
    """`stream: true` gives server-sent events; their text is the whole answer's."""
    with rig().serve() as client:
        answer = stream(client, chat)
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-cache"
        events = payloads(answer.text)
        whole = client.post("/v1/chat/completions", json=chat).json()
    assert events[-1] == "[DONE]"
    assert content(events) == whole["choices"][0]["message"]["content"] == "Hello"


@pytest.mark.requirement("T-248", "T-121", "T-120")
@pytest.mark.parametrize(
    "field", [{"stop": 5}, {"stop": [1]}, {"ignore_eos": 1}, {"ignore_eos": "yes"}, {"temperature": True}, {"n": 0}]
)
def test_a_bad_field_is_refused_before_a_stream_opens(rig: Rig, chat: dict[str, Any], field: dict[str, Any]) -> None:
    """A malformed `stop` or a non-boolean `ignore_eos` is a 400 with a status of its own, not an event in a stream."""
    with rig().serve() as client:
        answer = stream(client, chat, **field)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"].startswith(next(iter(field)))


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (InvalidRequest("no"), 400),
        (Rejected("full", status=429, retry_after=7.2), 429),
        (Rejected("away", retry_after=1e9), 503),
    ],
)
def test_a_refusal_by_the_engine_keeps_its_status_also_for_a_stream(
    rig: Rig, chat: dict[str, Any], refusal: Exception, status: int
) -> None:
    def refuse(request: Request) -> Iterator[Any]:
        yield refusal

    with rig(refuse).serve() as client:
        answer = stream(client, chat)
        assert answer.status_code == status
        expected = {400: None, 429: "8", 503: "60"}[status]
        assert answer.headers.get("retry-after") == expected
        assert answer.headers.get("x-should-retry") == (expected and "true")


@pytest.mark.requirement("T-260")
@pytest.mark.parametrize("failure", ["Failed", "an exception", "an early end"])
def test_a_failure_after_the_stream_opened_is_an_error_event_and_then_done(
    rig: Rig, chat: dict[str, Any], failure: str
) -> None:
    """An error event of type `server_error`, then `[DONE]`; the next request is served."""

    def fail(request: Request) -> Iterator[ScriptItem]:
        yield TextDelta(0, "one")
        yield TextDelta(0, "two")
        if len(made.engine.requests) > 1:
            yield from list(reply_events([""]))[-2:]
        elif failure == "Failed":
            yield GenerationFailed("the round failed")
        elif failure == "an exception":
            raise ZeroDivisionError("inside")

    made = rig(fail)
    with made.serve() as client:
        *events, error, done = payloads(stream(client, chat).text)
        assert [event["choices"][0]["delta"].get("content") for event in events] == ["", "one", "two"]
        assert (error["error"]["type"], done) == ("server_error", "[DONE]")
        assert "inside" not in error["error"]["message"]
        assert content(payloads(stream(client, chat).text)) == "onetwo"


@pytest.mark.requirement("T-259")
def test_a_failure_of_a_whole_answer_is_a_500(rig: Rig, chat: dict[str, Any]) -> None:
    """A generation error gives 500 for a non-streamed request."""

    def fail(request: Request) -> Iterator[ScriptItem]:
        yield TextDelta(0, "one")
        yield GenerationFailed("the round failed")

    with rig(fail).serve() as client:
        answer = client.post("/v1/chat/completions", json=chat)
        assert answer.status_code == 500
        assert answer.json()["error"] == {
            "message": "the round failed",
            "type": "server_error",
            "param": None,
            "code": None,
        }


def test_silence_is_filled_with_comments_that_no_client_reads_as_data(rig: Rig, chat: dict[str, Any]) -> None:
    def dawdle(request: Request) -> Iterator[ScriptItem]:
        yield 0.25
        yield TextDelta(0, "late")
        yield 0.25
        yield Stopped(0, "end")
        yield Finished(Usage(1, 1), Timings(), ("00",))

    def queued(request: Request) -> Iterator[ScriptItem]:
        yield next(reply_events([]))
        yield from dawdle(request)

    with rig(queued, HttpSettings(keep_alive_seconds=0.05)).serve() as client:
        text = stream(client, chat).text
        events = payloads(text)
        before, _, after = text.partition("late")
        assert before.count(": keep-alive\n\n") >= 2
        assert after.count(": keep-alive\n\n") >= 2
        assert content(events) == "late"


def test_the_head_of_a_stream_comes_before_its_first_token(rig: Rig, chat: dict[str, Any]) -> None:
    go = threading.Event()

    def wait(request: Request) -> Iterator[ScriptItem]:
        yield next(reply_events([]))
        while not go.is_set():
            yield 0.01
        yield from list(reply_events(["x"]))[1:]

    with (
        rig(wait).serve() as client,
        client.stream("POST", "/v1/chat/completions", json={**chat, "stream": True}) as answer,
    ):
        assert answer.status_code == 200
        go.set()
        assert content(payloads(answer.read().decode())) == "x"


def test_each_piece_is_sent_as_it_comes(rig: Rig, chat: dict[str, Any]) -> None:
    seen = threading.Semaphore(0)

    def step(request: Request) -> Iterator[ScriptItem]:
        for number in range(5):
            yield TextDelta(0, f"<{number}>")
            give_up = time.monotonic() + 20
            while not seen.acquire(blocking=False) and time.monotonic() < give_up:
                yield 0.005
        yield Stopped(0, "end")
        yield Finished(Usage(1, 5), Timings(), ("00",))

    with (
        rig(step).serve() as client,
        client.stream("POST", "/v1/chat/completions", json={**chat, "stream": True}) as answer,
    ):
        text, released = "", 0
        for piece in answer.iter_text():
            text += piece
            while f"<{released}>" in text:
                released += 1
                seen.release()
    assert content(payloads(text)) == "<0><1><2><3><4>"


def test_several_prompts_run_side_by_side_and_are_answered_in_order(rig: Rig) -> None:
    def echo(request: Request) -> Iterator[ScriptItem]:
        yield 0.05 if request.prompt.text == "first" else 0.0  # type: ignore[union-attr]
        for choice in range(request.choices):
            yield TextDelta(choice, f"{request.prompt.text}/{choice}")  # type: ignore[union-attr]
            yield Stopped(choice, "end")
        yield Finished(Usage(10, 2, cached_tokens=1), Timings(0.1, 0.2, 0.3), ("a", "b"))

    body = {"prompt": ["first", "second"], "n": 2}
    with rig(echo).serve() as client:
        whole = client.post("/v1/completions", json=body).json()
        events = payloads(client.post("/v1/completions", json={**body, "stream": True}).text)
    texts = [choice["text"] for choice in whole["choices"]]
    assert texts == ["first/0", "first/1", "second/0", "second/1"]
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
    assert whole["usage"]["prompt_tokens"] == 20
    assert whole["usage"]["prompt_tokens_details"]["cached_tokens"] == 2
    assert whole["usage"]["completion_tokens"] == 4
    streamed = ["".join(c["text"] for e in events[:-1] for c in e["choices"] if c["index"] == i) for i in range(4)]
    assert streamed == texts
    assert events[-2]["usage"] == whole["usage"]


def test_one_refused_prompt_refuses_the_body_and_cancels_the_others(rig: Rig) -> None:
    def refuse_second(request: Request) -> Iterator[Any]:
        if request.prompt.text == "second":  # type: ignore[union-attr]
            yield InvalidRequest("not this one", param="prompt")
        yield next(reply_events([]))
        yield 20.0

    made = rig(refuse_second)
    with made.serve() as client:
        answer = client.post("/v1/completions", json={"prompt": ["first", "second"]})
        assert answer.status_code == 400
        first = made.engine.requests[0]
        assert made.engine.cancelled == [first.id]
        assert made.engine.status().running == 0


def test_one_failed_prompt_fails_the_stream_once_and_cancels_the_others(rig: Rig) -> None:
    def fail_second(request: Request) -> Iterator[ScriptItem]:
        yield next(reply_events([]))
        if request.prompt.text == "second":  # type: ignore[union-attr]
            yield GenerationFailed("broken")
        yield 20.0

    made = rig(fail_second)
    with made.serve() as client:
        events = payloads(client.post("/v1/completions", json={"prompt": ["first", "second"], "stream": True}).text)
        assert events[0]["error"]["message"] == "broken"
        assert events[1:] == ["[DONE]"]
    assert made.engine.cancelled == [made.engine.requests[0].id]


def test_a_stream_is_the_same_under_a_server_that_is_written_to_by_send_alone(rig: Rig, chat: dict[str, Any]) -> None:
    """The server's own protocol takes pieces directly; under any other one the client reads the same events."""

    def told(events: list[Any]) -> list[Any]:
        return [
            {name: value for name, value in event.items() if name not in ("id", "created")}
            if isinstance(event, dict)
            else event
            for event in events
        ]

    body = json.dumps({**chat, "stream": True}).encode()
    elsewhere = ask(rig().app, "POST", "/v1/chat/completions", body=body)
    with rig().serve() as client:
        own = stream(client, chat)
    assert told(payloads(elsewhere.body.decode())) == told(payloads(own.text))


def test_two_streams_that_are_asked_for_at_once_on_one_connection_come_one_after_the_other(
    rig: Rig, connect: Callable[..., socket.socket], chat: dict[str, Any]
) -> None:
    """Pieces of a second, pipelined answer never get into the first."""
    body = json.dumps({**chat, "stream": True}).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % len(body)
    with rig().serve() as client:
        connection = connect(client)
        connection.sendall(request + b"\r\n" + body + request + b"Connection: close\r\n\r\n" + body)
        read = b""
        while piece := connection.recv(1 << 16):
            read += piece
    first, second = read.split(b"HTTP/1.1 200 OK")[1:]
    for answer in (first, second):
        pieces = [answer.index(text) for text in (b'"Hel"', b'"lo"', b"[DONE]")]
        assert pieces == sorted(pieces)
        assert answer.endswith(b"0\r\n\r\n")

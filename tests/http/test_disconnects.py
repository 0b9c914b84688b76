"""A client that hangs up stops its request at once, whatever state it is in; a slow one costs bounded memory."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from tensorfold.http import HttpSettings, ServerSettings
from tensorfold.http.protocol import bounded_protocol
from tensorfold.ir import Finished, Queued, Request, Started, Stopped, TextDelta, Timings, Usage
from tensorfold.testing.scripted_engine import ScriptItem
from tensorfold.testing.waiting import until

Rig = Callable[..., Any]
Connect = Callable[..., socket.socket]


def send(connection: socket.socket, body: dict[str, Any], path: str = "/v1/chat/completions") -> None:
    content = json.dumps(body).encode()
    connection.sendall(
        b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(content)) + content
    )


def long_reply(request: Request) -> Iterator[ScriptItem]:
    yield Queued(1)
    yield Started(0)
    for number in range(100_000):
        yield TextDelta(0, f"{number} ")
        yield 0.002
    yield Stopped(0, "length")
    yield Finished(Usage(1, 100_000), Timings(), ("00",))


def never(request: Request) -> Iterator[ScriptItem]:
    yield Queued(1)
    yield 1000.0


@pytest.mark.requirement("T-157")
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("script", [long_reply, never], ids=["while it replies", "while it waits"])
def test_a_hang_up_cancels_the_request(
    rig: Rig, connect: Connect, chat: dict[str, Any], stream: bool, script: Callable[[Request], Iterator[ScriptItem]]
) -> None:
    """A client's disconnect stops its request, streamed or not, replying or waiting, without another request."""
    made = rig(script)
    with made.serve() as client:
        connection = connect(client)
        send(connection, {**chat, "stream": stream})
        until(lambda: len(made.engine.requests) == 1)
        if stream:
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        connection.close()
        until(lambda: made.engine.cancelled == [made.engine.requests[0].id])
        until(lambda: made.engine.status().running == 0)
        until(lambda: made.app.active == 0)


def test_a_hang_up_cancels_every_request_of_a_body(rig: Rig, connect: Connect) -> None:
    made = rig(never)
    with made.serve() as client:
        connection = connect(client)
        send(connection, {"prompt": ["a", "b", "c"], "stream": True}, "/v1/completions")
        until(lambda: len(made.engine.requests) == 3)
        connection.close()
        until(lambda: len(made.engine.cancelled) == 3)


def test_a_hang_up_while_the_request_is_submitted_cancels_it(rig: Rig, connect: Connect, chat: dict[str, Any]) -> None:
    def slow_to_queue(request: Request) -> Iterator[ScriptItem]:
        yield 0.1
        yield from never(request)

    made = rig(slow_to_queue)
    with made.serve() as client:
        connection = connect(client)
        send(connection, chat)
        until(lambda: len(made.engine.requests) == 1)
        connection.close()
        until(lambda: len(made.engine.cancelled) == 1)


@pytest.mark.requirement("T-157")
def test_twenty_streams_dropped_at_random_moments_leave_nothing_behind(
    rig: Rig, connect: Connect, chat: dict[str, Any]
) -> None:
    """After streams dropped in any state a new request is served, and nothing counts as busy."""
    dice = random.Random(7)

    def script(request: Request) -> Iterator[ScriptItem]:
        if request.limits.max_tokens == 8:
            yield from (TextDelta(0, "fine"), Stopped(0, "end"), Finished(Usage(1, 1), Timings(), ("00",)))
        yield from long_reply(request)

    made = rig(script)
    with made.serve() as client:
        for _ in range(20):
            connection = connect(client)
            send(connection, {**chat, "stream": True})
            time.sleep(dice.random() * 0.03)
            connection.close()
        answer = client.post("/v1/chat/completions", json={**chat, "max_tokens": 8})
        assert answer.json()["choices"][0]["message"]["content"] == "fine"
        until(lambda: made.app.active == 0)
        assert client.get("/health").json()["busy"] is False


@pytest.mark.requirement("T-299")
def test_gauges_fall_back_when_all_clients_leave(rig: Rig, connect: Connect, chat: dict[str, Any]) -> None:
    """`tensorfold:requests_running` is read from the engine at the scrape: no request is needed to bring it down."""
    made = rig(long_reply)
    with made.serve() as client:
        connections = [connect(client) for _ in range(12)]
        for connection in connections:
            send(connection, {**chat, "stream": True})
        until(lambda: "tensorfold:requests_running 12.0" in client.get("/metrics").text)
        for connection in connections:
            connection.close()
        until(lambda: "tensorfold:requests_running 0.0" in client.get("/metrics").text)
        assert "tensorfold:requests_waiting 0.0" in client.get("/metrics").text


def flood(pieces: int) -> Callable[[Request], Iterator[ScriptItem]]:
    """A reply that is much faster than its reader."""

    def script(request: Request) -> Iterator[ScriptItem]:
        yield Queued(1)
        for number in range(pieces):
            yield TextDelta(0, f"{number:07} ")
            if number % 100 == 0:
                yield 0.0
        yield Stopped(0, "length")
        yield Finished(Usage(1, pieces), Timings(), ("00",))

    return script


def test_a_slow_reader_gets_every_piece_and_others_are_not_held_up(
    rig: Rig, connect: Connect, chat: dict[str, Any]
) -> None:
    made = rig(flood(20_000))
    with made.serve() as client:
        slow = connect(client, receive_buffer=32768)
        send(slow, {**chat, "stream": True})
        # The engine is not held up either.
        until(lambda: len(made.engine.requests) == 1 and made.engine.status().running == 0)
        assert client.get("/health").status_code == 200
        received = b""
        while b"[DONE]" not in received[-100:]:
            received += slow.recv(65536)
    text = "".join(
        choice["delta"].get("content") or ""
        for line in received.split(b"\n")
        if line.startswith(b"data: {")
        for choice in json.loads(line[6:])["choices"]
    )
    assert text == "".join(f"{number:07} " for number in range(20_000))
    # What waited was joined: far fewer events than pieces.
    assert received.count(b"data: {") < 20_000


def test_a_stalled_reader_is_given_up_when_too_much_waits(rig: Rig, connect: Connect, chat: dict[str, Any]) -> None:
    made = rig(flood(1_000_000), HttpSettings(max_pending=50_000))
    with made.serve() as client:
        stalled = connect(client, receive_buffer=32768)
        send(stalled, {**chat, "stream": True})
        until(lambda: len(made.engine.cancelled) == 1)
        received = b""
        while piece := stalled.recv(65536):
            received += piece
            if b"[DONE]" in received[-100:]:
                break
        assert b"reads too slowly" in received
        assert len(received) < 20_000_000


def test_a_client_that_reads_nothing_is_cut_and_its_request_ends(
    rig: Rig, connect: Connect, chat: dict[str, Any]
) -> None:
    """Also one whose whole reply waits in the server's own buffers, where nothing else would end it."""

    def more_than_buffers(request: Request) -> Iterator[ScriptItem]:
        yield Queued(1)
        while True:
            yield TextDelta(0, "x" * 100_000)
            yield 0.005

    made = rig(more_than_buffers, HttpSettings(max_pending=1 << 30))
    with made.serve(write_seconds=0.3) as client:
        silent = connect(client, receive_buffer=4096)
        send(silent, {**chat, "stream": True})
        until(lambda: made.app.active == 1)
        until(lambda: made.app.active == 0)
        assert client.get("/health").status_code == 200


def test_a_client_that_stops_reading_is_cut_off_and_its_request_ends(
    rig: Rig, connect: Connect, chat: dict[str, Any]
) -> None:
    """It holds its lane and its connection no longer than the server waits for a reader; others are served on."""

    def endless(request: Request) -> Iterator[ScriptItem]:
        yield Queued(1)
        while True:
            yield TextDelta(0, "x" * 100_000)
            yield 0.005

    made = rig(lambda request: long_reply(request) if request.model == "slow" else endless(request))
    with made.serve(write_seconds=0.3) as client:
        reading = connect(client)
        send(reading, {**chat, "stream": True, "model": "slow"})
        stalled = connect(client, receive_buffer=32768)
        send(stalled, {**chat, "stream": True})
        until(lambda: len(made.engine.cancelled) == 1)
        until(lambda: made.app.active == 1)
        assert made.engine.status().running == 1
        assert reading.recv(65536)


class Wire(asyncio.Transport):
    """Nothing is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted


def test_a_reader_that_comes_back_in_time_is_not_cut_off() -> None:
    """The time runs only while too much waits, and begins anew each time."""

    async def main() -> tuple[bool, bool]:
        config = uvicorn.Config(app=lambda scope: None)
        config.load()
        protocol = bounded_protocol(ServerSettings(write_seconds=0.01))(config, ServerState(), {})
        wire = Wire()
        protocol.connection_made(wire)
        for _ in range(3):
            protocol.pause_writing()
            protocol.resume_writing()
        await asyncio.sleep(0.1)
        kept = not wire.aborted
        protocol.pause_writing()
        await asyncio.sleep(0.1)
        protocol.connection_lost(OSError())
        return kept, wire.aborted

    assert asyncio.run(main()) == (True, True)

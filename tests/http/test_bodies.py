"""Bodies and heads of any size, speed and kind: bounded, and answered with a 4xx in the dialect's envelope."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest

from tensorfold.http import HttpSettings
from tensorfold.ir import Queued, Request
from tensorfold.testing.dialects import reply_events
from tensorfold.testing.scripted_engine import ScriptItem
from tensorfold.testing.waiting import until

Rig = Callable[..., Any]
Connect = Callable[[httpx.Client], socket.socket]


def still_serves(client: httpx.Client, chat: dict[str, Any]) -> bool:
    """Whether the next request is served."""
    return client.post("/v1/chat/completions", json=chat).status_code == 200


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error in OpenAI's envelope."""
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_a_body_that_says_it_is_too_long_is_refused_before_it_is_read(rig: Rig, connect: Connect) -> None:
    with rig(settings=HttpSettings(max_body=1000)).serve() as client:
        connection = connect(client)
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n"
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_is_counted_as_it_comes(rig: Rig, chat: dict[str, Any]) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 1000

    with rig(settings=HttpSettings(max_body=10_000)).serve() as client:
        answer = client.post("/v1/chat/completions", content=pieces())
        assert answer.status_code == 413
        assert "10,000 bytes" in error_of(answer)["message"]
        assert still_serves(client, chat)


def test_a_chunked_body_within_the_bound_is_read(rig: Rig, chat: dict[str, Any]) -> None:
    def pieces() -> Iterator[bytes]:
        yield from (bytes([byte]) for byte in json.dumps(chat).encode())

    with rig().serve() as client:
        assert client.post("/v1/chat/completions", content=pieces()).status_code == 200


def test_a_body_over_32_mib_is_a_413_and_the_next_request_is_served(rig: Rig, chat: dict[str, Any]) -> None:
    with rig().serve() as client:
        answer = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x" * (33 << 20)}]})
        assert answer.status_code == 413
        assert error_of(answer)["type"] == "invalid_request_error"
        assert still_serves(client, chat)


def test_a_large_body_is_decoded_beside_the_event_loop(rig: Rig) -> None:
    made = rig(settings=HttpSettings(front_bytes=1000))
    with made.serve() as client:
        assert client.post("/v1/completions", json={"prompt": "word " * 100_000}).status_code == 200
        answer = client.post("/v1/completions", json={"prompt": "word " * 100_000, "n": 0})
        assert answer.status_code == 400
        assert error_of(answer)["param"] == "n"
    assert made.engine.requests[0].prompt.text == "word " * 100_000


def test_more_large_bodies_than_the_queue_holds_are_a_503(rig: Rig) -> None:
    with rig(settings=HttpSettings(front_bytes=0, front_threads=1, front_queue=-1)).serve() as client:
        answer = client.post("/v1/completions", json={"prompt": "x"})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"


def test_a_body_that_stops_coming_is_a_408(rig: Rig, connect: Connect) -> None:
    with rig(settings=HttpSettings(body_idle_seconds=0.1)).serve() as client:
        connection = connect(client)
        connection.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"prompt"')
        assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_comes_a_byte_now_and_then_is_a_408(rig: Rig, connect: Connect) -> None:
    """Also when no pause is too long: all of it has its time."""
    with rig(settings=HttpSettings(body_seconds=0.0)).serve() as client:
        connection = connect(client)
        connection.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"prompt"')
        answer = HTTPResponse(connection)
        answer.begin()
        assert answer.status == 408 and b"has taken more than" in answer.read()


def answered_early(connection: socket.socket, length: int) -> None:
    """A body of so many bytes is too long; nine of them are sent."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    connection.sendall(head % length + b'{"prompt"')
    answer = HTTPResponse(connection)
    answer.begin()
    assert answer.status == 413 and answer.read()


def test_the_rest_of_a_body_that_was_answered_cannot_be_sent_for_ever(rig: Rig, connect: Connect) -> None:
    """Else whoever was refused could hold a connection with a byte now and then."""
    with rig(settings=HttpSettings(max_body=50)).serve(idle_seconds=1) as client:
        connection = connect(client)
        answered_early(connection, 1 << 30)
        connection.settimeout(0.05)
        give_up = time.monotonic() + 20
        while time.monotonic() < give_up:
            try:
                connection.sendall(b" ")
                if connection.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
        raise AssertionError("it is still open")


def test_a_connection_that_was_answered_before_its_bodys_end_may_not_be_idle_for_ever(
    rig: Rig, connect: Connect
) -> None:
    """The end of the body begins the time anew, and the next request is answered before that."""
    with rig(settings=HttpSettings(max_body=50)).serve(idle_seconds=1) as client:
        connection = connect(client)
        answered_early(connection, 100)
        connection.sendall(b" " * 91 + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = HTTPResponse(connection)
        answer.begin()
        assert answer.status == 200 and answer.read()
        other = connect(client)
        answered_early(other, 100)
        other.sendall(b" " * 91)
        assert other.recv(1) == b""


@pytest.mark.parametrize("piece", [b"x: y\r\n" * 100, b"y" * 600], ids=["many", "one"])
def test_what_comes_behind_a_chunked_body_is_bounded(rig: Rig, connect: Connect, piece: bytes) -> None:
    """Trailers are kept by the parser, and a client could send them for ever."""
    with rig().serve() as client:
        connection = connect(client)
        connection.sendall(
            b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"pro\r\n0\r\nx: '
        )
        with pytest.raises(ConnectionError):
            connection.sendall(piece * 20_000)


@pytest.mark.parametrize("size", [1, 7, 3000])
def test_chunks_of_any_size_are_read(rig: Rig, chat: dict[str, Any], size: int) -> None:
    """A large body, byte by byte: what lies between its chunks is more than the body."""
    body = json.dumps({**chat, "user": "x" * 200_000}).encode()
    with rig().serve() as client:
        pieces = (body[start : start + size] for start in range(0, len(body), size))
        answer = client.post("/v1/chat/completions", content=pieces, headers={"content-type": "application/json"})
        assert answer.status_code == 200


def test_a_client_that_leaves_inside_its_body_harms_nobody(rig: Rig, connect: Connect, chat: dict[str, Any]) -> None:
    made = rig()
    with made.serve() as client:
        connection = connect(client)
        connection.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"prompt"')
        connection.close()
        assert still_serves(client, chat)
    assert len(made.engine.requests) == 1


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"content-type": "text/plain"}, "text/plain"),
        ({"content-type": "application/x-www-form-urlencoded"}, "application/x-www-form-urlencoded"),
        ({"content-type": "multipart/form-data; boundary=x"}, "multipart/form-data"),
        ({"content-type": "application/json; charset=utf-16"}, "utf-16"),
        ({"content-type": "application/json", "content-encoding": "gzip"}, "gzip"),
        ({"content-type": "application/json", "content-encoding": "zstd"}, "zstd"),
    ],
)
def test_a_body_of_another_kind_is_a_415_that_says_what_to_send(
    rig: Rig, chat: dict[str, Any], headers: dict[str, str], says: str
) -> None:
    with rig().serve() as client:
        answer = client.post("/v1/chat/completions", content=json.dumps(chat), headers=headers)
        assert answer.status_code == 415
        assert says in error_of(answer)["message"]
        assert still_serves(client, chat)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "application/json"},
        {"content-type": "Application/JSON; Charset=UTF-8"},
        {"content-type": "application/problem+json"},
        {"content-type": "application/json", "content-encoding": "identity"},
    ],
)
def test_json_under_its_usual_names_is_read(rig: Rig, chat: dict[str, Any], headers: dict[str, str]) -> None:
    with rig().serve() as client:
        assert client.post("/v1/chat/completions", content=json.dumps(chat), headers=headers).status_code == 200


def test_a_head_that_is_too_long_is_a_431(rig: Rig, chat: dict[str, Any]) -> None:
    with rig().serve() as client:
        answer = client.get("/v1/models", headers={"x-long": "y" * 70_000})
        assert answer.status_code == 431
        assert still_serves(client, chat)


def test_a_head_without_an_end_is_cut_off(rig: Rig, connect: Connect) -> None:
    with rig().serve() as client:
        connection = connect(client)
        received = b""
        try:
            connection.sendall(b"GET / HTTP/1.1\r\n")
            for number in range(100_000):
                connection.sendall(b"x-%d: %s\r\n" % (number, b"y" * 1000))
        except OSError:
            pass  # the server has closed
        try:
            received = connection.recv(4096)
        except OSError:
            return
        assert received == b"" or received.startswith(b"HTTP/1.1 431 ")


def test_a_client_that_never_ends_its_head_is_dropped(rig: Rig, connect: Connect) -> None:
    with rig().serve(head_seconds=0.1) as client:
        silent, slow = connect(client), connect(client)
        slow.sendall(b"GET / HTTP/1.1\r\n")
        assert silent.recv(1) == b""
        assert slow.recv(1) == b""


def test_an_empty_line_behind_a_body_does_not_end_the_reply(rig: Rig, connect: Connect, chat: dict[str, Any]) -> None:
    """Some clients send one; it is the beginning of a head that has no hurry while the reply is on its way."""

    def unhurried(request: Request) -> Iterator[ScriptItem]:
        yield Queued(1)
        yield 0.6
        yield from tuple(reply_events(["late"]))[1:]

    made = rig(unhurried)
    with made.serve(head_seconds=0.1) as client:
        connection = connect(client)
        body = json.dumps(chat).encode()
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        until(lambda: made.engine.requests)
        connection.sendall(b"\r\n")
        answer = HTTPResponse(connection)
        answer.begin()
        assert json.loads(answer.read())["choices"][0]["message"]["content"] == "late"


def test_a_kept_connection_may_be_used_again_after_a_while(rig: Rig, chat: dict[str, Any]) -> None:
    with rig().serve(head_seconds=0.5) as client:
        assert still_serves(client, chat)
        time.sleep(0.8)
        assert still_serves(client, chat)


def test_more_connections_than_the_bound_are_told_to_come_back(rig: Rig, connect: Connect) -> None:
    with rig().serve(max_connections=2) as client:
        first = connect(client)
        second = connect(client)
        for connection in (first, second):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        third = connect(client)
        received = b"".join(iter(lambda: third.recv(4096), b""))
        head, _, body = received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ") and b"\r\nretry-after: 1\r\n" in head
        assert json.loads(body)["error"]["code"] == "too_many_connections"


@pytest.mark.parametrize(
    "junk", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/9.9\r\n\r\n"]
)
def test_what_is_no_http_is_dropped_and_the_server_lives(
    rig: Rig, connect: Connect, chat: dict[str, Any], junk: bytes
) -> None:
    with rig().serve() as client:
        connection = connect(client)
        connection.sendall(junk)
        connection.settimeout(5)
        with contextlib.suppress(TimeoutError):  # it may wait for more
            assert not connection.recv(4096).startswith(b"HTTP/1.1 2")
        assert still_serves(client, chat)


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: x\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
    ],
)
def test_a_head_that_contradicts_itself_about_the_body_is_refused(
    rig: Rig, connect: Connect, chat: dict[str, Any], head: bytes
) -> None:
    made = rig()
    with made.serve() as client:
        connection = connect(client)
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + head + b'\r\n0\r\n\r\n{"prompt": "smuggled"}'
        )
        assert not connection.recv(4096).startswith(b"HTTP/1.1 2")
        assert still_serves(client, chat)
    assert len(made.engine.requests) == 1


def test_a_body_that_is_longer_than_it_says_is_cut_there(rig: Rig, connect: Connect, chat: dict[str, Any]) -> None:
    made = rig()
    with made.serve() as client:
        connection = connect(client)
        connection.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"prompt": "x"}')
        assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")
        assert still_serves(client, chat)
    assert len(made.engine.requests) == 1

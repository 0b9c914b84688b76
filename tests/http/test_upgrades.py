"""Offers to go on with another protocol: Java's client makes one with each first request, and `curl --http2`."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest

from tensorfold.testing.waiting import until

Rig = Callable[..., Any]
Connect = Callable[[httpx.Client], socket.socket]

OFFERS = {
    "http/2": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n",
    "websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n",
}


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of the next one."""
    found = HTTPResponse(connection)
    found.begin()
    return found.status, found.read()


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
@pytest.mark.parametrize("chunked", [False, True], ids=["of known length", "chunked"])
@pytest.mark.parametrize("cut", [0, 60, -1, -2], ids=["whole", "in its head", "behind its head", "in its body"])
def test_the_request_is_answered_as_without_the_offer(
    rig: Rig, connect: Connect, chat: dict[str, Any], offer: bytes, chunked: bool, cut: int
) -> None:
    """With its body, wherever packets begin, and so is the next one on the same connection."""
    content = json.dumps(chat).encode()
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content) if chunked else content
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + offer + framing + b"\r\n\r\n"
    place = {-1: len(head), -2: len(head) + 10}.get(cut, cut)
    made = rig()
    with made.serve() as client:
        connection = connect(client)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall((head + body)[:place])
        if cut < 0:  # the server has the head
            until(lambda: made.app.active == 1)
        following = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        connection.sendall((head + body)[place:] + following)
        received = b"".join(iter(lambda: connection.recv(4096), b""))
        assert received.count(b"HTTP/1.1 200 ") == 2
        assert b'"content":"Hello"' in received and b'{"status":"ok"' in received
    assert len(made.engine.requests) == 1


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
def test_a_request_without_a_body_may_have_an_offer_too(rig: Rig, connect: Connect, offer: bytes) -> None:
    with rig().serve() as client:
        connection = connect(client)
        for _ in range(2):
            connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + offer + b"\r\n")
            status, body = answer(connection)
            assert (status, json.loads(body)["object"]) == (200, "list")


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: gzip\r\n",
    ],
)
def test_an_offer_does_not_hide_a_head_that_contradicts_itself(
    rig: Rig, connect: Connect, chat: dict[str, Any], framing: bytes
) -> None:
    made = rig()
    with made.serve() as client:
        connection = connect(client)
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + OFFERS["http/2"] + framing + b"\r\n"
        connection.sendall(head + b'0\r\n\r\n{"prompt": "smuggled"}')
        assert answer(connection)[0] == 400
        assert client.post("/v1/chat/completions", json=chat).status_code == 200
    assert len(made.engine.requests) == 1


def test_this_is_no_proxy(rig: Rig, connect: Connect, chat: dict[str, Any]) -> None:
    with rig().serve() as client:
        connection = connect(client)
        connection.sendall(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
        assert answer(connection)[0] in (400, 403, 404, 405, 421)
        assert client.post("/v1/chat/completions", json=chat).status_code == 200

"""Our own HTTP client and its reading of event streams, against raw sockets that answer well and badly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tensorfold.cli.client import Address, Client
from tensorfold.cli.completion import Done, Piece, Update, model_of, stream
from tensorfold.cli.sse import data_of
from tensorfold.errors import ClientError, ConfigError

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served(answer: Answer) -> AsyncGenerator[tuple[Client, list[bytes]]]:
    """A socket that reads one request after another; what it got, and a client for it."""
    heads: list[bytes] = []

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                heads.append(head)
                length = next(
                    int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"ontent-" in line and b"ength" in line
                )
                await answer(await reader.readexactly(length), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    client = Client(Address("127.0.0.1", server.sockets[0].getsockname()[1], False, ""), "a-key")
    try:
        yield client, heads
    finally:
        await client.close()
        server.close()
        await server.wait_closed()


def plain(status: str, body: bytes) -> Answer:
    """An answer of known length."""

    async def answer(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body))

    return answer


def streamed(*pieces: bytes, ends: bool = True) -> Answer:
    """A chunked answer, a chunk for each piece."""

    async def answer(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n") if ends else writer.close()

    return answer


async def updates(client: Client) -> list[Update]:
    """All of one reply."""
    return [update async for update in stream(client, "/v1/chat/completions", {"messages": []})]


def test_a_connection_is_used_again_and_carries_the_key() -> None:
    async def talk() -> tuple[list[str], list[bytes], int]:
        ports: set[int] = set()
        ok = plain("200 OK", b'{"data": [{"id": "m"}]}')

        async def answer(body: bytes, writer: asyncio.StreamWriter) -> None:
            ports.add(writer.get_extra_info("peername")[1])
            await ok(body, writer)

        async with served(answer) as (client, heads):
            return [await model_of(client), await model_of(client)], heads, len(ports)

    names, heads, connections = asyncio.run(talk())
    assert names == ["m", "m"]
    assert connections == 1
    assert all(b"Authorization: Bearer a-key\r\n" in head for head in heads)


def test_a_stream_is_read_piece_by_piece_however_it_is_cut() -> None:
    text = (
        ": hello\n\n"
        'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n'
        'data: {"choices": [{"delta": {"reasoning_content": "hm"}}]}\r\n\r\n'
        'data: {"choices": [{"delta": {"content": "grün"}, "finish_reason": null}]}\n\n'
        'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'
        'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}\n\n'
        "data: [DONE]\n\n"
    ).encode()
    expected = [Piece("hm", thinking=True), Piece("grün"), Done("stop", 3, 2)]

    async def talk(size: int) -> list[Update]:
        cut = [text[at : at + size] for at in range(0, len(text), size)]
        async with served(streamed(*cut)) as (client, _):
            return await updates(client)

    for size in (1, 7, len(text)):
        assert asyncio.run(talk(size)) == expected


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (plain("400 Bad Request", b'{"error": {"message": "too long"}}'), "the server answers 400: too long"),
        (plain("502 Bad Gateway", b"<html>"), "the server answers 502: <html>"),
        (streamed(b'data: {"error": {"message": "engine failed"}}\n\n'), "engine failed"),
        (streamed(b"data: {nonsense\n\n"), "no JSON"),
        (streamed(b'data: {"choices": []}\n\n', ends=False), "broke off"),
    ],
)
def test_a_refusal_or_a_broken_answer_is_told_in_the_servers_words(answer: Answer, message: str) -> None:
    async def talk() -> None:
        async with served(answer) as (client, _):
            await updates(client)

    with pytest.raises(ClientError, match=message):
        asyncio.run(talk())


def test_a_server_that_is_not_there_is_named() -> None:
    async def talk() -> None:
        async with served(plain("200 OK", b"")) as (client, _):
            pass
        await model_of(client)

    with pytest.raises(ClientError, match=r"no server answers at http://127\.0\.0\.1:\d+"):
        asyncio.run(talk())


def test_lines_of_data_are_joined_and_a_last_event_without_its_end_is_dropped() -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        for piece in (b"data: a\ndata:b\nevent: x\n\n", b"data: \xe2\x82", b"\xac\n\ndata: lost"):
            yield piece

    async def read() -> list[str]:
        return [data async for data in data_of(chunks())]

    assert asyncio.run(read()) == ["a\nb", "€"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080"),
        ("https://models.example/api/v1", "https://models.example:443/api"),
        ("localhost:5000", "http://localhost:5000"),
        ("http://[::1]:80", "http://[::1]:80"),
    ],
)
def test_a_url_may_end_in_v1_or_not(url: str, shown: str) -> None:
    assert str(Address.of(url)) == shown


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:port"])
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="no URL"):
        Address.of(url)

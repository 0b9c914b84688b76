"""The front: 1,000 open streams of the scripted model through the whole path, over what a bare Falcon generator streams.

Both are served by uvicorn in a process of their own, one after the other, and read over sockets. The whole path is
rendering, queue, scheduler, rounds, sampling, parser, codec and SSE, in one process: its figure is tokens a second.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from statistics import median
from typing import Any

import falcon.asgi
import uvicorn

from tensorfold.engine.settings import EngineSettings
from tensorfold.http import HttpSettings, create_app
from tensorfold.observe import configure_logs
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.scripted import Script
from tensorfold.testing.toy_engine import toy_engine
from tensorfold.testing.toy_tokenizer import ToyTokenizer
from tensorfold_dialect_openai import openai_dialect

EVENT = (
    b'data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","system_fingerprint":"fp",'
    b'"choices":[{"index":0,"text":"x","finish_reason":null,"logprobs":null}]}\n\n'
)
PATH = "/v1/completions"


class Bare:
    """Streams ready-made events."""

    def __init__(self, events: int) -> None:
        self._events = events

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """As many as there are tokens."""
        await req.stream.read()
        resp.content_type = "text/event-stream"
        resp.stream = self._stream()

    async def _stream(self) -> AsyncIterator[bytes]:
        for _ in range(self._events):
            yield EVENT


def serve(kind: str, port: int, streams: int, tokens: int) -> None:
    """In the child: until it is killed."""
    configure_logs("json", "error")
    if kind == "bare":
        app: Any = falcon.asgi.App()
        app.add_route(PATH, Bare(tokens))
    else:
        engine = toy_engine(
            [Script(tuple(b"x"), tuple(b"a reply of no particular sense, "[place % 32] for place in range(tokens)))],
            tokenizer=ToyTokenizer(),
            window=256,
            lanes=streams,
            positions=256 * streams,
            settings=EngineSettings(rows=streams, front_queue=4 * streams, prefix_bytes=0),
        )
        engine.start()
        app = create_app(
            engine=engine,
            model=MODEL,
            dialects=[openai_dialect()],
            settings=HttpSettings(max_requests=4 * streams),
        )
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", lifespan="off", backlog=4096)


async def one(port: int, body: bytes) -> int:
    """One stream, read to its end: how many events."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
    events = 0
    while piece := await reader.read(1 << 16):
        events += piece.count(b"data: ")
    writer.close()
    return events


async def flood(port: int, streams: int, body: bytes) -> tuple[int, float]:
    """Events in all, and seconds from the first request to the last event."""
    began = time.perf_counter()
    events = await asyncio.gather(*(one(port, body) for _ in range(streams)))
    return sum(events), time.perf_counter() - began


def measured(kind: str, wanted: argparse.Namespace) -> float:
    """Tokens (of the bare generator: events) a second."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    child = subprocess.Popen(
        [sys.executable, __file__, "--serve", kind, "--port", str(port), "--streams", str(wanted.streams),
         "--tokens", str(wanted.tokens)]
    )  # fmt: skip
    body = b'{"model":"m","prompt":"x","stream":true,"ignore_eos":true,"temperature":0,"max_tokens":%d}' % wanted.tokens
    try:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port), 0.1).close()
                break
            except OSError:
                time.sleep(0.1)
        rates = []
        for repeat in range(wanted.repeats + 1):
            events, seconds = asyncio.run(flood(port, wanted.streams, body))
            if repeat:
                rates.append(wanted.streams * wanted.tokens / seconds)
        print(f"  {kind}: {events / wanted.streams:.1f} events a stream of {wanted.tokens} tokens")
        return median(rates)
    finally:
        child.kill()
        child.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--serve")
    parser.add_argument("--port", type=int, default=0)
    wanted = parser.parse_args()
    if wanted.serve:
        serve(wanted.serve, wanted.port, wanted.streams, wanted.tokens)
        return
    bare, whole = measured("bare", wanted), measured("whole", wanted)
    print(f"bare Falcon {bare:,.0f} events/s, whole path {whole:,.0f} tokens/s: {whole / bare:.2f} (goal 0.4)")


main()

"""The front: 1,000 open streams of the scripted model through the whole path, over what a bare Falcon generator streams.

Goals: 40 % of the bare generator's events a second, and 20 ms of added latency (p99) at a quarter of that rate.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import falcon.asgi

from tensorfold.engine.depth import Deepest
from tensorfold.http import create_app
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.toy_engine import toy_engine
from tensorfold.testing.toy_tokenizer import ToyTokenizer
from tensorfold_dialect_openai import openai_dialect

EVENT = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'


class Bare:
    """Streams events as fast as Falcon takes them."""

    def __init__(self, events: int) -> None:
        self._events = events

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """Ready-made bytes."""
        await req.stream.read()
        resp.content_type = "text/event-stream"
        resp.stream = self._stream()

    async def _stream(self) -> AsyncIterator[bytes]:
        for _ in range(self._events):
            yield EVENT
            await asyncio.sleep(0)


class Client:
    """One POST to an ASGI application; counts events, and remembers when they came."""

    def __init__(self, app: Any, path: str, body: bytes) -> None:
        self.events = 0
        self.times: list[float] = []
        self._app, self._path, self._body = app, path, body

    async def run(self) -> None:
        """To the stream's end."""
        over = asyncio.Event()
        pieces = [self._body]

        async def receive() -> dict[str, Any]:
            if pieces:
                return {"type": "http.request", "body": pieces.pop(), "more_body": False}
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.body":
                count = message.get("body", b"").count(b"data: ")
                self.events += count
                if count:
                    self.times.append(time.perf_counter())
                if not message.get("more_body", False):
                    over.set()

        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(self._body)).encode())]
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "POST",
            "scheme": "http", "path": self._path, "raw_path": self._path.encode(), "query_string": b"", "root_path": "",
            "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8080),
        }  # fmt: skip
        await self._app(scope, receive, send)


async def flood(app: Any, path: str, streams: int, body: bytes) -> float:
    """Events a second over all streams."""
    clients = [Client(app, path, body) for _ in range(streams)]
    began = time.perf_counter()
    await asyncio.gather(*(client.run() for client in clients))
    return sum(client.events for client in clients) / (time.perf_counter() - began)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    wanted = parser.parse_args()
    tokenizer = ToyTokenizer()
    body = b'{"model":"m","prompt":"x","stream":true,"ignore_eos":true,"draft":false,"max_tokens":%d}' % wanted.tokens
    bare = falcon.asgi.App()
    bare.add_route("/v1/completions", Bare(wanted.tokens))
    from tensorfold.engine.settings import EngineSettings

    engine = toy_engine(
        tokenizer=tokenizer, window=256, lanes=1000, positions=64 * 4000, policy=None,
        settings=EngineSettings(rows=1000, front_queue=4000, prefix_bytes=0),
    )  # fmt: skip
    assert Deepest
    engine.start()
    from tensorfold.http import HttpSettings

    app = create_app(engine=engine, model=MODEL, dialects=[openai_dialect()], settings=HttpSettings())
    plain: list[float] = []
    whole: list[float] = []
    for repeat in range(wanted.repeats + 1):
        rates = (
            await flood(bare, "/v1/completions", wanted.streams, body),
            await flood(app, "/v1/completions", wanted.streams, body),
        )
        if repeat:
            plain.append(rates[0])
            whole.append(rates[1])
    plain.sort()
    whole.sort()
    base, ours = plain[len(plain) // 2], whole[len(whole) // 2]
    print(f"bare Falcon {base:,.0f}, whole path {ours:,.0f} events/s: {ours / base:.2f}")
    await engine.close(0)


asyncio.run(main())

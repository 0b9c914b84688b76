"""The front: 1,000 open streams of the scripted model through the whole path, against a bare Falcon generator's events.

Each runs in a process of its own, the one as users run it and the other under uvicorn, and they are flooded in turns. The
whole path is rendering, queue, scheduler, rounds, sampling, detokenizer, parser, codec and SSE. Rates are told by the
clock, and over the seconds of processor time that the server took: what one core of its own would give, whatever else the
machine does meanwhile. A flooded server joins what waits for a client into one event, so tokens are told besides events;
the bare generator has one token an event.

Then the whole path is held at a quarter of its rate, and each token's way is timed, from the step that computes it to
the client's read. What else the machine does shows there: the p99 is taken second by second, and the middle one told.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import falcon.asgi
import uvicorn

from tensorfold.contracts.dialect import Dialect, Resource
from tensorfold.contracts.step import Step
from tensorfold.engine.settings import EngineSettings
from tensorfold.http import HttpSettings, ServerSettings, create_app, run_server
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
PATH, METER, TIMES = "/v1/completions", "/processor-seconds", "/step-times"
PROMPT = 4
"""Characters of a prompt, which is the stream's number."""
REPLY = b"a reply of no particular sense, "


# ---- the servers ------------------------------------------------------------------------------------------


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
            # As every token's event is waited for; a generator that never waits is joined into a few large writes.
            await asyncio.sleep(0)
            yield EVENT


@dataclass
class Pace:
    """Holds steps of replies to a rate, and notes when each token's row was computed."""

    rate: float
    """Tokens a second; 0: as fast as it goes, and nothing is noted."""
    due: float = 0.0
    streams: dict[int, int] = field(default_factory=dict[int, int])
    """Slots to streams' numbers."""
    times: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    """For each stream, when its reply's tokens were computed, the first one's left out."""

    def step(self, step: Step[Any]) -> None:
        """Called before a step is computed."""
        if step.kind == "chunk":
            for each in step.segments:
                self.streams[each.slot] = int(bytes(each.tokens))
            return
        self.due = max(self.due, time.perf_counter() - 0.05) + len(step.segments) / self.rate
        time.sleep(max(0.0, self.due - time.perf_counter()))
        now = time.perf_counter()
        for each in step.segments:
            self.times.setdefault(self.streams[each.slot], []).append(now)


class Told:
    """A resource that tells the processor seconds of its process, or what `pace` has noted."""

    def __init__(self, read: Callable[[], object]) -> None:
        self._read = read

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """In JSON."""
        resp.data = json.dumps(self._read()).encode()


def serve(kind: str, port: int, streams: int, tokens: int, rate: float) -> None:
    """In the child: until it is killed."""
    configure_logs("json", "error")
    if kind == "bare":
        bare: falcon.asgi.App[falcon.asgi.Request, falcon.asgi.Response] = falcon.asgi.App()
        bare.add_route(PATH, Bare(tokens))
        bare.add_route(METER, Told(time.process_time))
        uvicorn.run(bare, host="127.0.0.1", port=port, log_level="error", lifespan="off", backlog=4096)
        return
    pace = Pace(rate)
    reply = tuple((REPLY * (1 + tokens // len(REPLY)))[:tokens])
    engine = toy_engine(
        [Script(tuple(_prompt(number).encode()), reply) for number in range(streams)],
        tokenizer=ToyTokenizer(),
        window=1024,
        lanes=streams,
        positions=1024 * streams,
        on_step=pace.step if rate else None,
        settings=EngineSettings(front_queue=4 * streams, prefix_bytes=0),
    )
    engine.start()
    told = Dialect(
        name="told",
        errors=openai_dialect().errors,
        resources=lambda _: [Resource(METER, Told(time.process_time)), Resource(TIMES, Told(lambda: pace.times))],
    )
    app = create_app(
        engine=engine,
        model=MODEL,
        dialects=[openai_dialect(), told],
        settings=HttpSettings(max_requests=4 * streams),
    )
    run_server(app, ServerSettings(port=port, max_connections=4 * streams), on_ready=lambda _: None)


def _prompt(number: int) -> str:
    return f"{number:0{PROMPT}}"


@contextmanager
def served(kind: str, wanted: argparse.Namespace, tokens: int, rate: float = 0.0) -> Iterator[int]:
    """The port of a server in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    child = subprocess.Popen(
        [sys.executable, __file__, "--serve", kind, "--port", str(port), "--streams", str(wanted.streams),
         "--tokens", str(tokens), "--rate", str(rate)]
    )  # fmt: skip
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 0.1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        child.kill()
        child.wait()


def told(port: int, path: str) -> Any:
    """What the metered application tells."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return json.load(answer)


# ---- the client -------------------------------------------------------------------------------------------


async def opened(port: int, number: int, tokens: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A stream that has been asked for. It is open as long as its writer is held."""
    body = json.dumps(
        {"model": "m", "prompt": _prompt(number), "stream": True, "ignore_eos": True, "temperature": 0,
         "max_tokens": tokens}
    ).encode()  # fmt: skip
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
    return reader, writer


async def flood(port: int, streams: int, tokens: int) -> int:
    """All streams at once, read to their ends: how many events."""

    async def one(number: int) -> int:
        reader, writer = await opened(port, number, tokens)
        events = 0
        while piece := await reader.read(1 << 16):
            events += piece.count(b"data: ")
        writer.close()
        return events

    return sum(await asyncio.gather(*map(one, range(streams))))


async def timed(port: int, streams: int, tokens: int) -> list[list[float]]:
    """For each stream, when each character of its reply was read."""

    async def one(number: int) -> list[float]:
        reader, writer = await opened(port, number, tokens)
        times: list[float] = []
        async for line in reader:
            now = time.perf_counter()
            at = line.find(b'"text":"')
            if line.startswith(b"data: {") and at >= 0:
                times += [now] * line[at + 8 :].index(b'"')
        writer.close()
        return times

    return await asyncio.gather(*map(one, range(streams)))


def rate(port: int, wanted: argparse.Namespace) -> tuple[float, float, float]:
    """Events a second of the server's processor time, the same by the clock, and events a token."""
    seconds, began = told(port, METER), time.perf_counter()
    events = asyncio.run(flood(port, wanted.streams, wanted.tokens))
    clock = time.perf_counter() - began
    return (
        events / (told(port, METER) - seconds),
        events / clock,
        events / wanted.streams / wanted.tokens,
    )


def latencies(wanted: argparse.Namespace, rate: float, tokens: int) -> list[list[float]]:
    """Milliseconds from a token's step to its read, ascending, for each second from when all streams are open on."""
    with served("whole", wanted, tokens, rate) as port:
        read = asyncio.run(timed(port, wanted.streams, tokens))
        steps = told(port, TIMES)
    computed = [steps[str(number)] for number in range(wanted.streams)]
    begun = max(times[0] for times in read)
    seconds: dict[int, list[float]] = {}
    for stream, times in zip(read, computed, strict=True):
        for seen, made in zip(stream[1:], times, strict=True):
            if made > begun:
                seconds.setdefault(int(made - begun), []).append((seen - made) * 1000)
    return [sorted(found) for _, found in sorted(seconds.items()) if len(found) >= 100]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--serve")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.0)
    wanted = parser.parse_args()
    if wanted.serve:
        serve(wanted.serve, wanted.port, wanted.streams, wanted.tokens, wanted.rate)
        return
    found: dict[str, list[tuple[float, float, float]]] = {"bare": [], "whole": []}
    with served("bare", wanted, wanted.tokens) as bare, served("whole", wanted, wanted.tokens) as whole:
        for repeat in range(wanted.repeats + 1):
            for kind, port in (("bare", bare), ("whole", whole)):
                measured = rate(port, wanted)
                if repeat:
                    found[kind].append(measured)
                    print(f"  {kind}: {measured[0]:,.0f} events/core-s, {measured[1]:,.0f} events/s, "
                          f"{measured[2]:.2f} events a token")  # fmt: skip
    core = {kind: median(each[0] for each in runs) for kind, runs in found.items()}
    clock = {kind: median(each[1] for each in runs) for kind, runs in found.items()}
    tokens = {kind: median(each[1] / each[2] for each in runs) for kind, runs in found.items()}
    for name, rates in (
        ("events by processor time", core), ("events by the clock", clock), ("tokens by the clock", tokens)
    ):  # fmt: skip
        print(f"{name}: bare {rates['bare']:,.0f}, whole path {rates['whole']:,.0f} a second: "
              f"{rates['whole'] / rates['bare']:.2f}")  # fmt: skip
    pace = core["whole"] / 4
    seconds = latencies(wanted, pace, 128)
    middles, ends = [each[len(each) // 2] for each in seconds], [each[len(each) * 99 // 100] for each in seconds]
    print(f"at {pace:,.0f} tokens/s over {wanted.streams} streams, from step to read: median {median(middles):.1f} ms; "
          f"p99 of each of {len(seconds)} seconds: the middle one {median(ends):.1f} ms (goal 20), "
          f"from {min(ends):.1f} to {max(ends):.1f}")  # fmt: skip


main()

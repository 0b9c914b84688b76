"""Mixed load on a real server, for `SOAK_SECONDS` (30): replies stay what they are alone, and nothing grows.

The load is a few dozen kinds of requests over every dialect, with streams that are dropped, bodies that are refused,
readers that do not read and sockets that say half a word. What a busy machine may delay is reported; it is held to a
bound only in a long run.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tensorfold.testing.tiny import TinyModel, write_tiny

from .load import BAD, CASES, Case, signature

SECONDS = float(os.environ.get("SOAK_SECONDS", "30"))
LONG_RUN = 300.0
"""From here on, times and small growth are held to bounds too."""
CLIENTS = 6
MIB = 1 << 20

PROBE = """
import http.client, json, sys, time
host, port, end, found = sys.argv[1], int(sys.argv[2]), time.time() + float(sys.argv[3]), []
while time.time() < end:
    connection = http.client.HTTPConnection(host, port, timeout=60)
    began = time.perf_counter()
    connection.request("GET", "/health")
    status = connection.getresponse().status
    found.append((time.perf_counter() - began, status))
    connection.close()
    time.sleep(0.05)
print(json.dumps(found))
"""
"""Asks for health in a process of its own, so that the load's own work does not count."""


@dataclass
class Report:
    """What has happened."""

    answered: Counter[str] = field(default_factory=Counter[str])
    """Whole answers, by case; dropped streams, refusals and the like by their own names."""
    wrong: list[str] = field(default_factory=list[str])
    """Answers that differ from the solo run, and statuses that ought not to be."""
    memory: list[int] = field(default_factory=list[int])
    """Resident bytes, one a second."""
    health: list[float] = field(default_factory=list[float])
    """Seconds."""

    def lines(self, seconds: float) -> list[str]:
        """For people."""
        ordered = sorted(self.health)
        shown = {f"p{share}": ordered[min(len(ordered) - 1, len(ordered) * share // 100)] for share in (50, 99)}
        return [
            f"{sum(self.answered.values())} requests in {seconds:.0f} s: "
            + ", ".join(f"{n} {k}" for k, n in sorted(self.answered.items())),
            f"health: {len(ordered)} times, "
            + ", ".join(f"{name} {1000 * value:.1f} ms" for name, value in shown.items()),
            f"memory: {self.early / MIB:.0f} MiB after warm-up, {self.late / MIB:.0f} MiB at the end",
        ]

    @property
    def early(self) -> float:
        """Resident bytes in the third fifth."""
        return statistics.median(self.memory[2 * len(self.memory) // 5 : 3 * len(self.memory) // 5] or self.memory)

    @property
    def late(self) -> float:
        """Resident bytes in the last fifth."""
        return statistics.median(self.memory[4 * len(self.memory) // 5 :] or self.memory)


class Server:
    """`tensorfold serve` on a tiny model."""

    def __init__(self, folder: Path) -> None:
        model = write_tiny(folder / "tiny", TinyModel(window=1024, seed=3))
        options = ["--parallel", "4", "--context", "1024", "--queue", "500", "--prompt-cache-gib", "0.005"]
        options += ["--spill-gib", "0.01", "--spill-dir", str(folder / "spill"), "--log-level", "error", "--port", "0"]
        self._log = (folder / "log").open("w+")
        command = [sys.executable, "-m", "tensorfold", "serve", str(model), *options]
        self.process = subprocess.Popen(command, stderr=self._log, text=True)
        self.url = self._address(folder / "log")

    def _address(self, log: Path) -> str:
        end = time.monotonic() + 120
        while time.monotonic() < end and self.process.poll() is None:
            if (found := re.search(r"address +(http://\S+)/v1", log.read_text())) is not None:
                return found[1]
            time.sleep(0.05)
        raise AssertionError(log.read_text())

    @property
    def memory(self) -> int:
        """Resident bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def descriptors(self) -> int:
        """Open files and sockets."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def health(self) -> dict[str, Any]:
        """What it says of itself."""
        told: dict[str, Any] = httpx.get(f"{self.url}/health").json()
        return told

    def errors(self) -> str:
        """What it logged."""
        self._log.seek(0)
        return "\n".join(
            line for line in self._log.read().splitlines() if '"level": "error"' in line or "Traceback" in line
        )

    def end(self) -> int:
        """Its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        """Whatever state it is in."""
        self.process.kill()
        self.process.wait()
        self._log.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A running one."""
    server = Server(tmp_path)
    yield server
    server.kill()


class Soak:
    """The load."""

    def __init__(self, server: Server, client: httpx.AsyncClient) -> None:
        self._server = server
        self._client = client
        self._solo: dict[str, str] = {}
        self._end = 0.0
        self.report = Report()

    async def run(self, seconds: float) -> None:
        """Every case alone, then all at once."""
        for case in CASES:
            answer = await self._client.post(case.path, json=case.body)
            assert answer.status_code == 200, (case.name, answer.text)
            self._solo[case.name] = signature(answer.text)
        self._end = time.monotonic() + seconds
        host, port = self._server.url.removeprefix("http://").split(":")
        probe = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROBE, host, port, str(seconds), stdout=asyncio.subprocess.PIPE
        )
        work: list[Callable[[random.Random], Awaitable[None]]] = [self._ask] * CLIENTS
        work += [self._drop, self._refuse, self._read_slowly, self._half_open]
        await asyncio.gather(self._watch(), *(self._repeat(each, seed) for seed, each in enumerate(work)))
        out, _ = await probe.communicate()
        for taken, status in json.loads(out):
            self.report.health.append(taken)
            if status != 200:
                self.report.wrong.append(f"health: {status}")

    async def _repeat(self, work: Callable[[random.Random], Awaitable[None]], seed: int) -> None:
        rng = random.Random(seed)
        while time.monotonic() < self._end:
            await work(rng)

    async def _watch(self) -> None:
        while time.monotonic() < self._end:
            self.report.memory.append(self._server.memory)
            await asyncio.sleep(1)

    async def _ask(self, rng: random.Random) -> None:
        case = rng.choice(CASES)
        answer = await self._client.post(case.path, json=case.body)
        self.report.answered[_kind(case)] += 1
        if answer.status_code != 200:
            self.report.wrong.append(f"{case.name}: {answer.status_code} {answer.text[:200]}")
        elif (got := signature(answer.text)) != self._solo[case.name]:
            self.report.wrong.append(f"{case.name}: {got[:200]} instead of {self._solo[case.name][:200]}")

    async def _drop(self, rng: random.Random) -> None:
        case = rng.choice([each for each in CASES if each.streams])
        async with self._client.stream("POST", case.path, json=case.body) as answer:
            left = rng.randrange(4)
            async for _ in answer.aiter_raw():
                if not left:
                    break
                left -= 1
        self.report.answered["dropped streams"] += 1

    async def _refuse(self, rng: random.Random) -> None:
        path, body = rng.choice(BAD)
        answer = await self._client.post(path, content=body, headers={"content-type": "application/json"})
        self.report.answered["bad bodies"] += 1
        if not 400 <= answer.status_code < 500:
            self.report.wrong.append(f"{path} {body[:40]!r}: {answer.status_code}")
        await asyncio.sleep(0.02)

    async def _read_slowly(self, rng: random.Random) -> None:
        case = next(each for each in CASES if each.name == "text streamed")
        reader, writer = await self._connect()
        writer.write(_request(case))
        while piece := await reader.read(64):
            if b"[DONE]" in piece:
                break
            await asyncio.sleep(0.002)
        writer.close()
        self.report.answered["slow readers"] += 1

    async def _half_open(self, rng: random.Random) -> None:
        case = rng.choice(CASES)
        request = _request(case)
        _, writer = await self._connect()
        # Part of a head, part of a body, or a whole request whose answer nobody reads.
        writer.write(request[: rng.choice([10, len(request) - 5, len(request)])])
        await asyncio.sleep(rng.uniform(0, 0.5))
        if rng.random() < 0.5:
            writer.transport.abort()
        else:
            writer.close()
        self.report.answered["half-open sockets"] += 1

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self._server.url.removeprefix("http://").split(":")
        return await asyncio.open_connection(host, int(port))


def _kind(case: Case) -> str:
    return case.name.removesuffix(" streamed")


def _request(case: Case) -> bytes:
    body = json.dumps(case.body).encode()
    head = f"POST {case.path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


async def _soaked(server: Server) -> tuple[Report, dict[str, Any]]:
    """The load's report, and health once nothing is left to do."""
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
        soak = Soak(server, client)
        await soak.run(SECONDS)
    for _ in range(600):
        health = server.health()
        if not health["busy"] and not health["requests_waiting"]:
            break
        await asyncio.sleep(0.1)
    return soak.report, server.health()


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(SECONDS * 2 + 300)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_mixed_load_changes_no_reply_and_leaves_nothing_behind(server: Server) -> None:
    before = server.health()
    descriptors = server.descriptors
    report, health = asyncio.run(_soaked(server))
    print("\n" + "\n".join(report.lines(SECONDS)))
    assert not report.wrong, report.wrong[:10]
    assert report.answered["chat bound to a schema"] and report.answered["dropped streams"]
    assert (health["status"], health["requests_failed"]) == ("ok", 0)
    assert health["streams"] == before["streams"]
    assert health["positions_free"] == before["positions_free"]
    for _ in range(300):
        if server.descriptors <= descriptors:
            break
        time.sleep(0.1)
    assert server.descriptors <= descriptors
    assert report.late - report.early < (16 if SECONDS >= LONG_RUN else 128) * MIB
    if SECONDS >= LONG_RUN:
        assert sorted(report.health)[len(report.health) * 99 // 100] < 0.1
    assert server.errors() == ""
    assert server.end() == 0

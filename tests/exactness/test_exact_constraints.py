"""Bound, demanded and budgeted replies do not depend on how they are computed, over a family with every kind of state."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from tensorfold.chat.formats import QwenFormat
from tensorfold.compute.runner import Runner
from tensorfold.contracts.backend import BackendSettings
from tensorfold.contracts.engine import PreparedPrompt
from tensorfold.contracts.states import PagedSpec, TableKey
from tensorfold.engine.constraints import Constraints
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Answer, JsonSchema, Limits, Prompt, Request, Sampling, ToolChoice, fold
from tensorfold.testing.fake_family import FakeFamily, fake_config, fake_decoder
from tensorfold.testing.golden import TOOLS
from tensorfold.testing.reference import ReferenceBackend
from tensorfold.testing.ticking import ticking
from tensorfold.testing.toy_chat import Guesses, chat_request
from tensorfold.testing.toy_engine import events, running
from tensorfold.testing.toy_tokenizer import ToyTokenizer

TOKENIZER = ToyTokenizer()
END = TOKENIZER.ids("<end>")[0]
WINDOW = 512
OPEN = "assistant:<think>\n"
FORMAT = QwenFormat()
SCHEMA = JsonSchema(
    {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 999}, "b": {"enum": ["x", "yy", None]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
)


class Opened:
    """A prompt that opens the reasoning."""

    def prepare(self, prompt: Prompt) -> PreparedPrompt:
        return PreparedPrompt(tuple(OPEN.encode()), OPEN)


def engine(guesses: Guesses | None, positions: int, growth: int) -> LocalEngine:
    """The fake family, with its draft head, in so much memory."""
    config = fake_config(vocabulary=TOKENIZER.size, window=WINDOW, stop_ids=(END,))
    geometry = FakeFamily().geometry(config)
    session = ReferenceBackend(chunk=8).open(BackendSettings())
    keys = {TableKey.of(spec) for spec in geometry.states.values() if isinstance(spec, PagedSpec)}
    whole = 4 * (WINDOW // 64 + 2)
    pages = {key: positions // 64 if key == TableKey("main", None) else whole for key in keys}
    runner: Runner[Any] = Runner(
        fake_decoder(session.packer, config), session, geometry, lanes=4, pages=pages, identity="fake"
    )
    return LocalEngine(
        runner,
        prompts=Opened(),
        tokenizer=TOKENIZER,
        chat=FORMAT,
        drafting=guesses,
        settings=EngineSettings(growth=growth),
        clock=ticking(),
        gates=Constraints(tokenizer=TOKENIZER, chat=FORMAT, geometry=geometry, frame=FORMAT.marks.frame),
    )


def serve(
    *requests: Request, guesses: Guesses | None = None, positions: int = 4 * WINDOW, growth: int = 2048
) -> tuple[list[Answer], dict[str, Any]]:
    async def main() -> tuple[list[Answer], dict[str, Any]]:
        async with running(engine(guesses, positions, growth)) as served:
            sent = await asyncio.gather(*(events(served, request) for request in requests))
            return [fold(each) for each in sent], dict(served.status().details)

    return asyncio.run(main())


def requests(kind: str) -> list[Request]:
    """Four requests of one kind, each with another seed."""
    limits = Limits(max_tokens=90, thinking_budget=12)
    kinds: dict[str, dict[str, Any]] = {
        "bound": {"grammar": SCHEMA},
        "demanded": {"tools": TOOLS, "tool_choice": ToolChoice("required")},
        "budgeted": {},
    }
    return [
        chat_request(limits=limits, sampling=Sampling(temperature=1.0, seed=seed), **kinds[kind]) for seed in range(4)
    ]


@pytest.mark.requirement("T-196", "T-206", "T-243")
@pytest.mark.parametrize("kind", ["bound", "demanded", "budgeted"])
def test_gates_hold_alike_serial_drafted_batched_and_resumed(kind: str) -> None:
    """Tokens, text and counts; the bound replies are whole values of their schema."""
    if kind == "bound":
        pytest.importorskip("xgrammar", reason="structured output needs the extra `grammar`")
    asked = requests(kind)
    references = [serve(msgspec.structs.replace(each, draft=False))[0][0] for each in asked]
    assert kind != "bound" or any(reference.choices[0].reason == "end" for reference in references)
    for reference in references:
        (choice,) = reference.choices
        assert reference.usage.reasoning_tokens <= 12 + len("\n</think>")
        if kind == "bound" and choice.reason == "end":
            assert list(json.loads(choice.text)) == ["a", "b"]
        if kind == "demanded":
            assert choice.calls
    guesses = Guesses(tuple(b'hello</think>{"a": 1, "b": null}'), 4)
    ways: list[dict[str, Any]] = [{}, {"guesses": guesses}, {"positions": 256, "growth": 1}]
    for way in ways:
        together, details = serve(*asked, **way)
        for answer, reference in zip(together, references, strict=True):
            assert answer.token_sha == reference.token_sha
            assert answer.choices == reference.choices
            assert answer.usage.reasoning_tokens == reference.usage.reasoning_tokens
        # Whole values of this schema are too short for so little memory to run out.
        assert details["preemptions_total"] > 0 or "growth" not in way or kind == "bound"

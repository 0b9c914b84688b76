"""Bound, demanded and budgeted replies of any model, in the ways that must not matter. For the contract of families."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tensorfold.chat.formats import QwenFormat
from tensorfold.compute.runner import Runner
from tensorfold.contracts.engine import PreparedPrompt
from tensorfold.contracts.family import Geometry
from tensorfold.engine.constraints import Constraints
from tensorfold.engine.depth import Deepest
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Answer, JsonSchema, Limits, Prompt, Request, Sampling, Tool, ToolChoice
from tensorfold.testing.letter_tokenizer import LetterTokenizer
from tensorfold.testing.toy_chat import Guesses, chat_request
from tensorfold.testing.toy_engine import answer_all, running

__all__ = ["GatedReplies", "gated_requests"]

FORMAT: Final = QwenFormat()
BUDGET: Final = 5
CALL: Final = ToolChoice("required")
TOOLS: Final = (Tool("look", None, {"type": "object", "properties": {}}), Tool("get_time"))
SCHEMA: Final = JsonSchema(
    {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["a"],
        "additionalProperties": False,
    }
)
CLOSED: Final = "\n</think>\n\n"
"""What ends the reasoning when the budget is spent."""
CALLED: Final = "<tool_call>\n<function=get_time>\n</function>\n</tool_call>"
"""The longest call that is forced to its end, for nothing stands within it."""
GUESS: Final = 'so</think>{"a":1}'
"""What is drafted, right or wrong."""


def gated_requests(*, bound: bool) -> list[Request]:
    """A budgeted request, one that has to call, and, if asked for, one that a schema binds. Each thinks a little first."""
    requests = [
        _request(24, 1),
        _request(BUDGET + len(CLOSED) + len(CALLED), 2, tools=TOOLS, tool_choice=CALL),
    ]
    return [*requests, _request(30, 3, grammar=SCHEMA)] if bound else requests


def _request(most: int, seed: int, **fields: Any) -> Request:
    limits = Limits(max_tokens=most, thinking_budget=BUDGET)
    return chat_request(limits=limits, sampling=Sampling(temperature=1.0, seed=seed), **fields)


@dataclass(frozen=True)
class GatedReplies:
    """Serves conversations whose prompt opens the reasoning, with every gate there is."""

    runner: Callable[[], Runner[Any]]
    """Makes a fresh one, with lanes for all requests."""
    geometry: Geometry

    @property
    def tokenizer(self) -> LetterTokenizer:
        """Of the model's vocabulary."""
        return LetterTokenizer(self.geometry.vocabulary, self.geometry.stop_ids)

    def prepare(self, prompt: Prompt) -> PreparedPrompt:
        """Implements `PromptSource`: the same prompt always, of more than two chunks."""
        text = "user: look at the time, and say it in a few words\nassistant:<think>\n"
        ids = self.tokenizer.encode(text, add_special_tokens=False, parse_special=True)
        return PreparedPrompt(tuple(ids), text)

    def serial(self, requests: Sequence[Request]) -> list[Answer]:
        """One after the other, one token a step, nothing kept."""
        plain = [msgspec.structs.replace(each, draft=False) for each in requests]
        return asyncio.run(self._served(plain, EngineSettings(prefix_bytes=0), together=False))

    def drafted_together(self, requests: Sequence[Request]) -> list[Answer]:
        """All at once, with guesses and the model's own draft head."""
        return asyncio.run(self._served(requests, EngineSettings(), together=True))

    async def _served(self, requests: Sequence[Request], settings: EngineSettings, *, together: bool) -> list[Answer]:
        tokenizer = self.tokenizer
        guess = tokenizer.encode(GUESS, add_special_tokens=False, parse_special=False)
        engine = LocalEngine(
            self.runner(),
            prompts=self,
            tokenizer=tokenizer,
            chat=FORMAT,
            settings=settings,
            drafting=Guesses(guess, 4),
            depth=Deepest(),
            gates=Constraints(tokenizer=tokenizer, chat=FORMAT, geometry=self.geometry, frame=FORMAT.marks.frame),
        )
        async with running(engine):
            return await answer_all(engine, requests, together=together)

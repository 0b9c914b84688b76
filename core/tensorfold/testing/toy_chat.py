"""Conversations over the scripted backend: replies that are scripted as text, run in every way that a reply can be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tensorfold.contracts.chat import CallFrame, ChatFormat, MarkedFormat
from tensorfold.contracts.engine import PreparedPrompt
from tensorfold.engine.constraints import Constraints
from tensorfold.engine.drafts import Drafter
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Answer, Chat, Event, Message, Prompt, Request, Text, Tool, fold
from tensorfold.testing.scripted import Script, scripted_geometry, scripted_runner
from tensorfold.testing.toy_engine import events, running
from tensorfold.testing.toy_tokenizer import ToyTokenizer

__all__ = ["Guesses", "ToyChat", "chat_request", "spelled"]

WINDOW = 4096


def chat_request(tools: Iterable[Tool] = (), **fields: Any) -> Request:
    """A request for a reply to `hi`."""
    return Request(id="r", prompt=Chat((Message("user", (Text("hi"),)),), tools=tuple(tools)), **fields)


def spelled(tokenizer: ToyTokenizer, text: str, longest: int = 64) -> tuple[int, ...]:
    """The text in the longest tokens that there are."""
    data, ids = text.encode(), list[int]()
    while data:
        for size in range(min(longest, len(data)), 0, -1):
            try:
                token = tokenizer.token_id(data[:size].decode()) if size > 1 else data[0]
            except UnicodeDecodeError:
                continue
            if token is not None:
                ids.append(token)
                data = data[size:]
                break
    return tuple(ids)


class Guesses:
    """Drafts given tokens whatever comes, wrong at every n-th place (0: never)."""

    def __init__(self, tokens: Sequence[int], wrong_every: int = 0) -> None:
        self._tokens = [
            65 if wrong_every and place % wrong_every == wrong_every - 1 else token
            for place, token in enumerate(tokens)
        ]

    def begin(self, prompt: Sequence[int]) -> Drafter:
        """A drafter for a fresh reply."""
        return _Guesser(self._tokens)


class _Guesser:
    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tokens
        self._kept = 0

    def extend(self, token: int) -> None:
        self._kept += 1

    def propose(self, most: int) -> Sequence[int]:
        return self._tokens[self._kept : self._kept + most]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyChat:
    """A model that says what its script says, and the engine around it."""

    format: ChatFormat
    tail: str = "assistant:"
    """The prompt's end."""
    thinking: bool | None = None
    """As `PreparedPrompt` has it."""
    budget: int | None = None
    """The server's thinking budget."""
    tokenizer: ToyTokenizer = field(default_factory=ToyTokenizer)
    frame: CallFrame | None = None
    """What the template writes around a call's name; None: what the format says."""
    window: int = WINDOW

    def prepare(self, prompt: Prompt) -> PreparedPrompt:
        """Implements `PromptSource`: the same prompt always."""
        ids = self.tokenizer.encode(self.tail, add_special_tokens=False, parse_special=True)
        return PreparedPrompt(tuple(ids), self.tail, thinking=self.thinking)

    def engine(self, reply: str, guesses: Guesses | None = None, **fields: Any) -> LocalEngine:
        """An engine whose model replies so, and ends; not started."""
        end = self.tokenizer.token_id("<end>")
        geometry = scripted_geometry(
            vocabulary=self.tokenizer.size,
            window=self.window,
            stop_ids=frozenset() if end is None else frozenset({end}),
        )
        script = Script(self.prepare(chat_request().prompt).ids, spelled(self.tokenizer, reply))
        frame = self.format.marks.frame if isinstance(self.format, MarkedFormat) else None
        return LocalEngine(
            scripted_runner([script], geometry, lanes=4, chunk=16),
            prompts=self,
            tokenizer=self.tokenizer,
            chat=self.format,
            drafting=guesses,
            settings=EngineSettings(max_tokens=256),
            gates=Constraints(
                tokenizer=self.tokenizer,
                chat=self.format,
                geometry=geometry,
                frame=self.frame or frame,
                thinking_budget=self.budget,
                **fields,
            ),
        )

    def events(self, reply: str, request: Request, guesses: Guesses | None = None, **fields: Any) -> list[Event]:
        """The events of one request, alone."""

        async def main() -> list[Event]:
            async with running(self.engine(reply, guesses, **fields)) as engine:
                return await events(engine, request)

        return asyncio.run(main())

    def answer(self, reply: str, request: Request, **fields: Any) -> Answer:
        """The answer, which is the same drafted, serial and beside others."""
        serial = fold(self.events(reply, msgspec.structs.replace(request, draft=False), **fields))
        guesses = Guesses(spelled(self.tokenizer, reply)), Guesses(spelled(self.tokenizer, reply), 3)
        for each in (fold(self.events(reply, request, guess, **fields)) for guess in guesses):
            assert_same(each, serial)
        for each in self._together(reply, request, 3, **fields):
            assert_same(each, serial)
        return serial

    def _together(self, reply: str, request: Request, count: int, **fields: Any) -> list[Answer]:
        async def main() -> list[Answer]:
            async with running(self.engine(reply, None, **fields)) as engine:
                return [fold(each) for each in await asyncio.gather(*(events(engine, request) for _ in range(count)))]

        return asyncio.run(main())


def assert_same(answer: Answer, reference: Answer) -> None:
    """Tokens and choices, bit for bit."""
    assert answer.token_sha == reference.token_sha
    assert answer.choices == reference.choices
    assert answer.usage.completion_tokens == reference.usage.completion_tokens
    assert answer.usage.reasoning_tokens == reference.usage.reasoning_tokens

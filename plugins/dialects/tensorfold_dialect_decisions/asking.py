"""Questions put to the engine: one prompt each, all at once, read from the distribution behind it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tensorfold.contracts.chat import Tokenizer
from tensorfold.contracts.engine import CanScore, PreparedPrompt, Services
from tensorfold.errors import InvalidRequest, RequestError, Unsupported
from tensorfold.ir import JSON, Chat, Label, Message, Request, Score, Text
from tensorfold_dialect_decisions.labels import Resolver
from tensorfold_dialect_decisions.questions import Question, render

__all__ = ["Interview", "Reading", "check_scoring"]


AT_ONCE = 16
"""Questions of one request that the engine has at a time; more of them could fill its queue alone."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the model expects as an answer."""

    probabilities: tuple[float, ...]
    """Of the options among themselves, in order; they sum to 1."""
    shares: tuple[float, ...]
    """Of the options within the whole vocabulary."""
    top_is_label: bool
    """Whether the likeliest token of all is an option's."""
    ids: tuple[int, ...]
    """The prompt."""
    groups: tuple[tuple[int, ...], ...]
    """The tokens that count for each option."""
    cached_tokens: int

    @property
    def label_mass(self) -> float:
        """The probability that the next token is an option's at all."""
        return sum(self.shares)

    @property
    def best(self) -> int:
        """The likeliest option; the first of equals."""
        return max(range(len(self.probabilities)), key=lambda index: self.probabilities[index])

    @property
    def expected(self) -> float:
        """The mean of the options' numbers, weighted by their probabilities."""
        return sum(index * probability for index, probability in enumerate(self.probabilities))


@dataclass(frozen=True, slots=True)
class Interview:
    """All questions of one request about one input."""

    id: str
    given: str
    """The input, as text."""
    questions: tuple[Question, ...]
    resolver: Resolver
    given_as: str
    """The body's field that holds the input, for errors about it."""
    temperature: float = 1.0
    template_kwargs: dict[str, JSON] = field(default_factory=dict[str, JSON])

    async def hold(self, services: Services) -> list[Reading]:
        """A reading for each question, in order.

        Raises:
            RequestError: one of them cannot be asked; the others are given up.
        """
        engine, tokenizer = check_scoring(services)
        turns = asyncio.Semaphore(AT_ONCE)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._ask(services, engine, tokenizer, turns, number))
                    for number in range(len(self.questions))
                ]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _ask(
        self, services: Services, engine: CanScore, tokenizer: Tokenizer, turns: asyncio.Semaphore, number: int
    ) -> Reading:
        question = self.questions[number]
        asked = render(self.given, question)
        message = Message("user", (Text(asked),))
        chat = Chat(messages=(message,), template_kwargs={**self.template_kwargs, "enable_thinking": False})
        try:
            async with turns:
                prepared = await services.engine.prepare(Request(id=self.id, prompt=chat))
                groups = await self.resolver.resolve(tokenizer, prepared.text or "", question.labels)
                labels = tuple(Label(tuple((token,) for token in tokens)) for tokens in groups)
                branch = _branch(tokenizer, prepared, self.given, asked)
                scored = await engine.score(Score(id=f"{self.id}-{number}", prompt=chat, labels=labels, branch=branch))
        except RequestError as error:
            if error.status != 400:
                raise
            param = self.given_as if error.param == "messages" else error.param
            raise InvalidRequest(f"{question.name}: {error.message}", param=param, code=error.code) from None
        return Reading(
            probabilities=_softmax([label.logprob for label in scored.labels], self.temperature),
            shares=tuple(math.exp(label.logprob) for label in scored.labels),
            top_is_label=any(scored.top in tokens for tokens in groups),
            ids=prepared.ids,
            groups=groups,
            cached_tokens=scored.usage.cached_tokens,
        )


def _branch(tokenizer: Tokenizer, prepared: PreparedPrompt, given: str, asked: str) -> int | None:
    """How many of a prompt's tokens are of what stands before its question; None: they cannot be told."""
    text = prepared.text or ""
    begin = text.rfind(asked)
    if begin < 0:
        return None
    # From the end, for the question is short and the input may be long.
    left, place = len(text[begin + len(given) :].encode()), len(prepared.ids)
    while left > 0 and place > 0:
        place -= 1
        left -= len(tokenizer.token_bytes(prepared.ids[place]))
    return place or None


def check_scoring(services: Services) -> tuple[CanScore, Tokenizer]:
    """The engine's scoring side, and the tokenizer.

    Raises:
        Unsupported: it has none.
    """
    if not isinstance(services.engine, CanScore) or services.tokenizer is None:
        raise Unsupported("this server's engine cannot score labels, so it serves no decisions")
    return services.engine, services.tokenizer


def _softmax(values: Sequence[float], temperature: float) -> tuple[float, ...]:
    highest = max(values)
    # Where not even one option is possible, all are equally so. The highest is taken off before the division: by the
    # smallest temperatures that leaves one, and not infinities.
    weights = [math.exp((value - highest) / temperature) if highest > -math.inf else 1.0 for value in values]
    whole = sum(weights)
    return tuple(weight / whole for weight in weights)

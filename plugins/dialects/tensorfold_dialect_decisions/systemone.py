"""`POST /v1/systemone`: TypeSafe's System One, questions and answers by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from tensorfold.contracts.dialect import DecodeContext, Inquiry
from tensorfold.contracts.engine import Services
from tensorfold.errors import DecodeError, InvalidRequest
from tensorfold.ir import JSON
from tensorfold.wire import BodyDecoder
from tensorfold.wire.envelope import CommonErrors
from tensorfold_dialect_decisions.asking import Interview, Reading
from tensorfold_dialect_decisions.labels import Resolver
from tensorfold_dialect_decisions.questions import (
    MAX_LEVELS,
    MAX_OPTIONS,
    Content,
    Question,
    as_text,
    choice,
    score,
    yes_no,
)

__all__ = ["SystemOneBody", "SystemOneCodec"]

MAX_QUESTIONS = 64

UNSERVED: Mapping[str, tuple[JSON, ...]] = {
    "assets": ({},),
    "images": ([],),
    "audio": (),
    "videos": ([],),
    "joint": (False,),
    "instructions": ("",),
    "temperature": (1,),
    "prompt_format_version": (),
    "return_prompt_token_ids": (False,),
}
"""Fields of this API on other servers, with the values that pass."""


class ChoiceQuestion(msgspec.Struct, tag="choice"):
    """One of several names."""

    instructions: Content
    criteria: dict[str, Content | None]


class ScoreQuestion(msgspec.Struct, tag="score"):
    """A level of a scale."""

    instructions: Content
    criteria: list[Content]


class NoulCriteria(msgspec.Struct):
    """What either answer means."""

    true: Content | None = None
    false: Content | None = None


class NoulQuestion(msgspec.Struct, tag="noul"):
    """Yes or no."""

    instructions: Content
    criteria: NoulCriteria | None = None


WireQuestion: TypeAlias = ChoiceQuestion | ScoreQuestion | NoulQuestion


class SystemOneBody(msgspec.Struct):
    """A request's body."""

    state: Content
    questions: dict[str, WireQuestion]
    model: str | None = None
    chat_template_kwargs: dict[str, JSON] | None = None


class ChoiceAnswer(msgspec.Struct, tag="choice"):
    """The likeliest name, and the probabilities of all."""

    choice: str
    confidence: float
    """The probability of the winner within the whole vocabulary."""
    probabilities: dict[str, float]


class ScoreAnswer(msgspec.Struct, tag="score"):
    """The expected level, and the probabilities of all."""

    score: float
    confidence: float
    legend: dict[str, Content]
    probabilities: dict[str, float]


class NoulAnswer(msgspec.Struct, tag="noul"):
    """The probability of yes."""

    noul: float


SystemOneAnswer: TypeAlias = ChoiceAnswer | ScoreAnswer | NoulAnswer


class UsageBody(msgspec.Struct):
    """Tokens counted; one a question counts as its answer."""

    input_tokens: int
    output_tokens: int


class Diagnostics(msgspec.Struct):
    """How far the model meant to answer with a label at all."""

    label_mass: float
    """The probability that the next token is one."""
    argmax_is_label: bool
    """Whether the likeliest token is one."""


class SystemOneReply(msgspec.Struct):
    """The answer."""

    model: str
    answers: dict[str, SystemOneAnswer]
    usage: UsageBody
    diagnostics: dict[str, Diagnostics]


class SystemOneCodec(CommonErrors):
    """Decodes bodies."""

    def __init__(self, resolver: Resolver) -> None:
        self._bodies = BodyDecoder(SystemOneBody, UNSERVED)
        self._resolver = resolver

    def decode(self, body: bytes, context: DecodeContext) -> Inquiry:
        """Questions about a state."""
        wanted = self._bodies.decode(body)
        given = as_text(wanted.state)
        if not given.strip():
            raise DecodeError("state is blank", param="state")
        if not 1 <= len(wanted.questions) <= MAX_QUESTIONS:
            raise DecodeError(f"questions must hold 1 to {MAX_QUESTIONS}", param="questions")
        _check_kwargs(wanted.chat_template_kwargs or {})
        questions = tuple(_question(name, question) for name, question in wanted.questions.items())
        interview = Interview(
            context.request_id,
            given,
            questions,
            self._resolver,
            "state",
            template_kwargs=wanted.chat_template_kwargs or {},
        )
        return SystemOneInquiry(interview, wanted.questions)


def _check_kwargs(variables: Mapping[str, JSON]) -> None:
    """An answer is read where the reply begins, and reasoning would stand there."""
    for name in ("enable_thinking", "thinking"):
        if variables.get(name) in (True, {"type": "enabled"}):
            raise InvalidRequest(
                f"chat_template_kwargs.{name} cannot turn thinking on: it is off here", param="chat_template_kwargs"
            )


def _question(name: str, wire: WireQuestion) -> Question:
    at, told, text = f"questions.{name}", f"question {name!r}", as_text(wire.instructions)
    if not text.strip():
        raise DecodeError(f"{at}.instructions is blank", param=f"{at}.instructions")
    match wire:
        case ChoiceQuestion(criteria=criteria):
            _check_count(len(criteria), MAX_OPTIONS, f"{at}.criteria")
            return choice(told, text, [(key, _optional(value)) for key, value in criteria.items()])
        case ScoreQuestion(criteria=levels):
            _check_count(len(levels), MAX_LEVELS, f"{at}.criteria")
            return score(told, text, [as_text(level) for level in levels])
        case NoulQuestion(criteria=criteria):
            meant = criteria or NoulCriteria()
            return yes_no(told, f"Question: {text}", _optional(meant.true) or "true", _optional(meant.false) or "false")


def _check_count(count: int, most: int, at: str) -> None:
    if not 2 <= count <= most:
        raise DecodeError(f"{at} must hold 2 to {most}", param=at)


def _optional(content: Content | None) -> str | None:
    return None if content is None else as_text(content)


class SystemOneInquiry:
    """One request."""

    names: Final = {"messages": "state"}

    def __init__(self, interview: Interview, questions: dict[str, WireQuestion]) -> None:
        self._interview = interview
        self._questions = questions

    async def answer(self, services: Services) -> bytes:
        """Answers by name."""
        readings = dict(zip(self._questions, await self._interview.hold(services), strict=True))
        return msgspec.json.encode(
            SystemOneReply(
                model=services.model.id,
                answers={name: _answer(self._questions[name], reading) for name, reading in readings.items()},
                usage=UsageBody(sum(len(reading.ids) for reading in readings.values()), len(readings)),
                diagnostics={
                    name: Diagnostics(reading.label_mass, reading.top_is_label) for name, reading in readings.items()
                },
            )
        )


def _answer(question: WireQuestion, reading: Reading) -> SystemOneAnswer:
    confidence = reading.shares[reading.best]
    match question:
        case ChoiceQuestion(criteria=criteria):
            names = list(criteria)
            return ChoiceAnswer(names[reading.best], confidence, dict(zip(names, reading.probabilities, strict=True)))
        case ScoreQuestion(criteria=levels):
            keys = [str(index) for index in range(len(levels))]
            legend = dict(zip(keys, levels, strict=True))
            return ScoreAnswer(
                reading.expected, confidence, legend, dict(zip(keys, reading.probabilities, strict=True))
            )
        case NoulQuestion():
            return NoulAnswer(reading.probabilities[0])

"""OpenAI's shape of `/v1/decisions`: answers in the order of the questions."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from tensorfold.contracts.dialect import DecodeContext
from tensorfold.contracts.engine import Services
from tensorfold.errors import DecodeError, Unsupported
from tensorfold.ir import JSON
from tensorfold.wire import BodyDecoder
from tensorfold_dialect_decisions.asking import Interview, Reading
from tensorfold_dialect_decisions.labels import Resolver
from tensorfold_dialect_decisions.questions import MAX_LEVELS, MAX_OPTIONS, Question, choice, score, yes_no

__all__ = ["OrderedBody", "OrderedReader"]

MAX_QUESTIONS = 64
MAX_IDENTIFIER = 128
"""Characters of `safety_identifier`."""


class WirePart(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a text; those of other types are refused by their type."""

    type: str
    text: str | None = None
    image_url: JSON = None
    file_id: JSON = None
    detail: JSON = None
    data: JSON = None
    prompt_cache_breakpoint: JSON = None
    """A hint; caching is automatic."""


WireText: TypeAlias = str | list[WirePart]


class WireItem(msgspec.Struct):
    """An item of the input; only users' messages are read."""

    type: str | None = None
    role: str | None = None
    content: WireText | None = None


class WireChoice(msgspec.Struct, forbid_unknown_fields=True):
    """One value to choose."""

    value: str | bool
    description: str | None = None


class WireLevel(msgspec.Struct, forbid_unknown_fields=True):
    """One level of a scale."""

    label: str
    description: str | None = None


class PredicateQuestion(msgspec.Struct, tag="predicate", forbid_unknown_fields=True):
    """Whether something holds."""

    instructions: WireText
    name: str | None = None


class ChoiceQuestion(msgspec.Struct, tag="choice", forbid_unknown_fields=True):
    """One of several values."""

    instructions: WireText
    choices: list[str | bool | WireChoice]
    name: str | None = None

    def values(self) -> list[WireChoice]:
        """The choices; a bare value is one without a description."""
        return [each if isinstance(each, WireChoice) else WireChoice(each) for each in self.choices]


class ScoreQuestion(msgspec.Struct, tag="score", forbid_unknown_fields=True):
    """A level of a scale."""

    instructions: WireText
    levels: list[WireLevel]
    name: str | None = None


WireQuestion: TypeAlias = PredicateQuestion | ChoiceQuestion | ScoreQuestion


class OrderedBody(msgspec.Struct, forbid_unknown_fields=True):
    """A request's body."""

    input: str | list[WireItem]
    questions: list[WireQuestion]
    model: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, JSON] | None = None
    safety_identifier: str | None = None


class PredicateAnswer(msgspec.Struct, tag="predicate"):
    """The probability that it holds."""

    name: str | None
    probability: float


class ValueProbability(msgspec.Struct):
    """Of one value."""

    value: str | bool
    probability: float


class ChoiceAnswer(msgspec.Struct, tag="choice"):
    """The likeliest value, and the probabilities of all."""

    name: str | None
    choice: str | bool
    confidence: float
    """The probability of the winner within the whole vocabulary."""
    probabilities: list[ValueProbability]


class LevelProbability(msgspec.Struct):
    """Of one level."""

    value: int
    label: str
    probability: float


class ScoreAnswer(msgspec.Struct, tag="score"):
    """The expected level, and the probabilities of all."""

    name: str | None
    score: float
    confidence: float
    probabilities: list[LevelProbability]


OrderedAnswer: TypeAlias = PredicateAnswer | ChoiceAnswer | ScoreAnswer


class InputDetails(msgspec.Struct):
    """Of the prompts' tokens."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct):
    """Of the answers' tokens."""

    reasoning_tokens: int = 0


class UsageBody(msgspec.Struct):
    """Tokens counted; one a question counts as its answer."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class OrderedReply(msgspec.Struct):
    """The answer. The API allows no further keys."""

    model: str
    answers: list[OrderedAnswer]
    usage: UsageBody


class OrderedReader:
    """Reads bodies of this shape."""

    def __init__(self, resolver: Resolver) -> None:
        self._bodies = BodyDecoder(OrderedBody)
        self._resolver = resolver

    def read(self, body: bytes, context: DecodeContext) -> OrderedInquiry:
        """
        Raises:
            DecodeError, Unsupported: it has not this shape, or holds what is not read.
        """
        wanted = self._bodies.decode(body)
        if not 1 <= len(wanted.questions) <= MAX_QUESTIONS:
            raise DecodeError(f"questions must hold 1 to {MAX_QUESTIONS}", param="questions")
        if len(wanted.safety_identifier or "") > MAX_IDENTIFIER:
            raise DecodeError(f"safety_identifier has more than {MAX_IDENTIFIER} characters", param="safety_identifier")
        given = _input(wanted.input)
        if not given.strip():
            raise DecodeError("input is blank", param="input")
        questions = [_question(question, f"questions[{index}]") for index, question in enumerate(wanted.questions)]
        interview = Interview(context.request_id, given, tuple(questions), self._resolver, "input")
        return OrderedInquiry(interview, wanted.questions)


def _input(given: str | list[WireItem]) -> str:
    if isinstance(given, str):
        return given
    texts: list[str] = []
    for index, item in enumerate(given):
        at = f"input[{index}]"
        if item.type not in (None, "message") or item.role != "user":
            told = item.role if item.type in (None, "message") else item.type
            raise Unsupported(f"{at} is of {str(told)[:40]!r}, and messages of the user are read here", param=at)
        if item.content is None:
            raise DecodeError(f"{at}.content is missing", param=f"{at}.content")
        texts.append(_text(item.content, f"{at}.content"))
    return "\n".join(texts)


def _text(given: WireText, at: str) -> str:
    if isinstance(given, str):
        return given
    texts: list[str] = []
    for index, part in enumerate(given):
        place = f"{at}[{index}]"
        if part.type != "input_text":
            raise Unsupported(f"{place} is of type {part.type[:40]!r}, and input_text is read here", param=place)
        if part.text is None:
            raise DecodeError(f"{place}.text is missing", param=f"{place}.text")
        texts.append(part.text)
    return "".join(texts)


def _question(wire: WireQuestion, at: str) -> Question:
    text = _text(wire.instructions, f"{at}.instructions")
    if not text.strip():
        raise DecodeError(f"{at}.instructions is blank", param=f"{at}.instructions")
    match wire:
        case PredicateQuestion():
            return yes_no(at, f"Question: {text}", "true", "false")
        case ChoiceQuestion():
            values = wire.values()
            _check_choices(values, f"{at}.choices")
            return choice(at, text, [(_shown(each.value), each.description) for each in values])
        case ScoreQuestion(levels=levels):
            if not 2 <= len(levels) <= MAX_LEVELS:
                raise DecodeError(f"{at}.levels must hold 2 to {MAX_LEVELS}", param=f"{at}.levels")
            return score(at, text, [_level(level) for level in levels])


def _shown(value: str | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def _level(level: WireLevel) -> str:
    return level.label if level.description is None else f"{level.label} - {level.description}"


def _check_choices(choices: list[WireChoice], at: str) -> None:
    if not 2 <= len(choices) <= MAX_OPTIONS:
        raise DecodeError(f"{at} must hold 2 to {MAX_OPTIONS}", param=at)
    seen: set[tuple[type, str | bool]] = set()
    for index, each in enumerate(choices):
        key = type(each.value), each.value
        if key in seen:
            raise DecodeError(f"{at}[{index}].value comes twice", param=f"{at}[{index}].value")
        seen.add(key)


class OrderedInquiry:
    """One request."""

    names: Final = {"messages": "input"}

    def __init__(self, interview: Interview, questions: list[WireQuestion]) -> None:
        self._interview = interview
        self._questions = questions

    async def answer(self, services: Services) -> bytes:
        """Answers in order."""
        readings = await self._interview.hold(services)
        tokens = sum(len(reading.ids) for reading in readings)
        usage = UsageBody(
            input_tokens=tokens,
            input_tokens_details=InputDetails(sum(reading.cached_tokens for reading in readings)),
            output_tokens=len(readings),
            output_tokens_details=OutputDetails(),
            total_tokens=tokens + len(readings),
        )
        answers = [_answer(*each) for each in zip(self._questions, readings, strict=True)]
        return msgspec.json.encode(OrderedReply(services.model.id, answers, usage))


def _answer(question: WireQuestion, reading: Reading) -> OrderedAnswer:
    confidence = reading.shares[reading.best]
    match question:
        case PredicateQuestion(name=name):
            return PredicateAnswer(name, reading.probabilities[0])
        case ChoiceQuestion(name=name):
            values = [each.value for each in question.values()]
            told = [ValueProbability(*each) for each in zip(values, reading.probabilities, strict=True)]
            return ChoiceAnswer(name, values[reading.best], confidence, told)
        case ScoreQuestion(name=name, levels=levels):
            labels = [level.label for level in levels]
            each = enumerate(zip(labels, reading.probabilities, strict=True))
            levelled = [LevelProbability(index, label, probability) for index, (label, probability) in each]
            return ScoreAnswer(name, reading.expected, confidence, levelled)

"""SGLang's shape of `/v1/decisions`, prompt format version 1: answers by the questions' ids."""

from __future__ import annotations

import unicodedata
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from tensorfold.contracts.dialect import DecodeContext
from tensorfold.contracts.engine import Services
from tensorfold.errors import DecodeError, InvalidRequest
from tensorfold.ir import JSON
from tensorfold.wire import BodyDecoder
from tensorfold_dialect_decisions.asking import Interview, Reading
from tensorfold_dialect_decisions.labels import SingleTokens
from tensorfold_dialect_decisions.questions import (
    FORMAT_VERSION,
    MAX_LEVELS,
    MAX_OPTIONS,
    Content,
    Question,
    as_text,
    choice,
    score,
    yes_no,
)

__all__ = ["KeyedBody", "KeyedReader"]

MAX_QUESTIONS = 256
MAX_NAME = 256
"""Characters of an id or a name."""


class WireOption(msgspec.Struct, forbid_unknown_fields=True):
    """One option of a choice."""

    name: str
    description: Content | None = None


class ChoiceQuestion(msgspec.Struct, tag="choice", forbid_unknown_fields=True):
    """One of several options."""

    id: str
    question: Content
    options: list[WireOption]


class ScoreQuestion(msgspec.Struct, tag="score", forbid_unknown_fields=True):
    """A level of a scale."""

    id: str
    question: Content
    levels: list[Content]


class YesNoQuestion(msgspec.Struct, tag="yes_no", forbid_unknown_fields=True):
    """Yes or no."""

    id: str
    question: Content
    yes: Content | None = None
    no: Content | None = None


WireQuestion: TypeAlias = ChoiceQuestion | ScoreQuestion | YesNoQuestion


class KeyedBody(msgspec.Struct, forbid_unknown_fields=True):
    """A request's body."""

    input: Content
    questions: list[WireQuestion]
    model: str | None = None
    temperature: float | None = None
    chat_template_kwargs: dict[str, JSON] | None = None
    prompt_format_version: int | None = None
    return_prompt_token_ids: bool | None = None
    images: list[JSON] | None = None


class YesNoAnswer(msgspec.Struct, tag="yes_no"):
    """The probabilities of yes and no."""

    probabilities: dict[str, float]
    label_mass: float
    prompt_token_ids: tuple[int, ...] | UnsetType = UNSET
    label_token_ids: tuple[int, ...] | UnsetType = UNSET


class ChoiceAnswer(msgspec.Struct, tag="choice"):
    """The likeliest option, and the probabilities of all."""

    choice: str
    probabilities: dict[str, float]
    label_mass: float
    prompt_token_ids: tuple[int, ...] | UnsetType = UNSET
    label_token_ids: tuple[int, ...] | UnsetType = UNSET


class ScoreAnswer(msgspec.Struct, tag="score"):
    """The expected level, and the probabilities of all."""

    score: float
    probabilities: dict[str, float]
    label_mass: float
    prompt_token_ids: tuple[int, ...] | UnsetType = UNSET
    label_token_ids: tuple[int, ...] | UnsetType = UNSET


KeyedAnswer: TypeAlias = YesNoAnswer | ChoiceAnswer | ScoreAnswer


class UsageBody(msgspec.Struct):
    """Tokens counted; nothing is generated."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class KeyedReply(msgspec.Struct):
    """The answer."""

    object: str
    model: str
    prompt_format_version: int
    answers: dict[str, KeyedAnswer]
    usage: UsageBody


class KeyedReader:
    """Reads bodies of this shape."""

    def __init__(self) -> None:
        self._bodies = BodyDecoder(KeyedBody)

    def read(self, body: bytes, context: DecodeContext) -> KeyedInquiry:
        """
        Raises:
            DecodeError, InvalidRequest: it has not this shape, or cannot be asked.
        """
        wanted = self._bodies.decode(body)
        _check(wanted)
        interview = Interview(
            context.request_id,
            as_text(wanted.input),
            tuple(_question(question, f"questions[{index}]") for index, question in enumerate(wanted.questions)),
            SingleTokens(),
            "input",
            1.0 if wanted.temperature is None else wanted.temperature,
        )
        return KeyedInquiry(interview, wanted.questions, bool(wanted.return_prompt_token_ids))


def _check(body: KeyedBody) -> None:
    if not as_text(body.input).strip():
        raise DecodeError("input is blank", param="input")
    if not 1 <= len(body.questions) <= MAX_QUESTIONS:
        raise DecodeError(f"questions must hold 1 to {MAX_QUESTIONS}", param="questions")
    if body.temperature is not None and not body.temperature > 0:
        raise InvalidRequest("temperature must be more than 0", param="temperature")
    if body.prompt_format_version not in (None, FORMAT_VERSION):
        raise InvalidRequest(
            f"prompt_format_version is {body.prompt_format_version}, and {FORMAT_VERSION} is served",
            param="prompt_format_version",
        )
    if body.images:
        raise InvalidRequest("images are not read here", param="images")
    for key, value in (body.chat_template_kwargs or {}).items():
        if key != "enable_thinking" or value is not False:
            raise InvalidRequest(
                "chat_template_kwargs may hold enable_thinking: false alone, for thinking is off here",
                param="chat_template_kwargs",
            )
    ids = [question.id for question in body.questions]
    for index, id in enumerate(ids):
        _check_name(id, f"questions[{index}].id")
        if id in ids[:index]:
            raise DecodeError(f"questions[{index}].id is {id!r}, as an earlier one is", param=f"questions[{index}].id")


def _check_name(name: str, at: str) -> None:
    if not name.strip() or len(name) > MAX_NAME:
        raise DecodeError(f"{at} must have 1 to {MAX_NAME} characters, and not blanks alone", param=at)


def _question(wire: WireQuestion, at: str) -> Question:
    name, text = f"question {wire.id!r}", as_text(wire.question)
    if not text.strip():
        raise DecodeError(f"{at}.question is blank", param=f"{at}.question")
    match wire:
        case ChoiceQuestion(options=options):
            _check_options(options, f"{at}.options")
            return choice(name, text, [(each.name.strip(), _optional(each.description)) for each in options])
        case ScoreQuestion(levels=levels):
            if not 2 <= len(levels) <= MAX_LEVELS:
                raise DecodeError(f"{at}.levels must hold 2 to {MAX_LEVELS}", param=f"{at}.levels")
            return score(name, text, [as_text(level) for level in levels])
        case YesNoQuestion(yes=yes, no=no):
            return yes_no(name, f"Is the following true? {text}", _optional(yes), _optional(no))


def _optional(content: Content | None) -> str | None:
    return None if content is None else as_text(content)


def _check_options(options: list[WireOption], at: str) -> None:
    if not 2 <= len(options) <= MAX_OPTIONS:
        raise DecodeError(f"{at} must hold 2 to {MAX_OPTIONS}", param=at)
    seen: set[str] = set()
    for index, option in enumerate(options):
        place, folded = f"{at}[{index}].name", option.name.strip().casefold()
        _check_name(option.name, place)
        if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in option.name):
            raise DecodeError(f"{place} holds a line break or a control character", param=place)
        if folded in seen:
            raise DecodeError(f"{place} is {option.name!r}, as an earlier one is", param=place)
        seen.add(folded)


class KeyedInquiry:
    """One request."""

    names: Final = {"messages": "input"}

    def __init__(self, interview: Interview, questions: list[WireQuestion], show_ids: bool) -> None:
        self._interview = interview
        self._questions = questions
        self._show_ids = show_ids

    async def answer(self, services: Services) -> bytes:
        """Probabilities by question."""
        readings = await self._interview.hold(services)
        tokens = sum(len(reading.ids) for reading in readings)
        answers: dict[str, KeyedAnswer] = {}
        for question, reading in zip(self._questions, readings, strict=True):
            told = answers[question.id] = _answer(question, reading)
            if self._show_ids:
                told.prompt_token_ids = reading.ids
                told.label_token_ids = tuple(token for (token,) in reading.groups)
        usage = UsageBody(tokens, 0, tokens)
        return msgspec.json.encode(KeyedReply("decisions", services.model.id, FORMAT_VERSION, answers, usage))


def _answer(question: WireQuestion, reading: Reading) -> KeyedAnswer:
    match question:
        case ChoiceQuestion(options=options):
            names = [option.name.strip() for option in options]
            probabilities = dict(zip(names, reading.probabilities, strict=True))
            return ChoiceAnswer(names[reading.best], probabilities, reading.label_mass)
        case ScoreQuestion():
            probabilities = {str(index): value for index, value in enumerate(reading.probabilities)}
            return ScoreAnswer(reading.expected, probabilities, reading.label_mass)
        case YesNoQuestion():
            yes, no = reading.probabilities
            return YesNoAnswer({"yes": yes, "no": no}, reading.label_mass)

"""A question as all three APIs mean it, and the words in which the model is asked.

The wording is that of SGLang's decision prompt, format version 1; the same lines serve the other two APIs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tensorfold.ir import JSON

__all__ = [
    "FORMAT_VERSION",
    "LETTERS",
    "MAX_LEVELS",
    "MAX_OPTIONS",
    "Content",
    "Option",
    "Question",
    "as_text",
    "choice",
    "render",
    "score",
    "yes_no",
]

FORMAT_VERSION = 1
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MAX_OPTIONS = len(LETTERS)
MAX_LEVELS = 10

Content: TypeAlias = str | list[JSON] | dict[str, JSON]
"""Text, or JSON that the model reads as text."""

_CLOSINGS = {
    "choice": "Answer with the letter of one option only.",
    "score": "Answer with the number of one level only.",
    "yes_no": "Answer with yes or no only.",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One possible answer."""

    label: str
    """What the model writes for it: `A` to `Z`, `0` to `9`, `yes` or `no`."""
    says: str | None
    """What stands behind the label; None: it has no line."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question about the input."""

    kind: Literal["choice", "score", "yes_no"]
    text: str
    """With the words that introduce it."""
    options: tuple[Option, ...]
    name: str
    """For messages: `question 'spam'`, `questions[2]`."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the options, in order."""
        return tuple(option.label for option in self.options)


def choice(name: str, text: str, options: Sequence[tuple[str, str | None]]) -> Question:
    """One of several options, each with a name and perhaps a description."""
    lines = [shown if described is None else f"{shown} - {described}" for shown, described in options]
    return Question("choice", f"Question: {text}", _labelled(LETTERS, lines), name)


def score(name: str, text: str, levels: Sequence[str]) -> Question:
    """A level of a scale, the first being 0."""
    return Question("score", f"Question: {text}", _labelled("0123456789", levels), name)


def yes_no(name: str, text: str, yes: str | None, no: str | None) -> Question:
    """Yes or no, each perhaps described."""
    return Question("yes_no", text, (Option("yes", yes), Option("no", no)), name)


def _labelled(labels: str, lines: Sequence[str]) -> tuple[Option, ...]:
    return tuple(Option(label, line) for label, line in zip(labels, lines, strict=False))


def as_text(content: Content) -> str:
    """Text as it is; JSON compact, in the order of its keys."""
    if isinstance(content, str):
        return content
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def render(given: str, question: Question) -> str:
    """The user's message: the input, an empty line, the question, a line for each option, what to answer with."""
    lines = [f"{option.label}: {option.says}" for option in question.options if option.says is not None]
    return "\n".join([given, "", question.text, *lines, _CLOSINGS[question.kind]])

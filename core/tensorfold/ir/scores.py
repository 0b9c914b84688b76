"""How likely labels are to come next: the question and its answer."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from tensorfold.errors import InvalidRequest
from tensorfold.ir.events import Timings, Usage
from tensorfold.ir.prompts import Prompt

__all__ = ["MAX_SPELLINGS", "Label", "LabelScore", "Score", "Scored", "SpellingScore"]

MAX_SPELLINGS = 1024
"""The most continuations that one request may have scored."""


class Label(msgspec.Struct, frozen=True):
    """One answer that is weighed against others."""

    spellings: tuple[str | tuple[int, ...], ...]
    """Ways in which it may continue the prompt, as text or as token ids; its probability is theirs together."""

    def __post_init__(self) -> None:
        if not self.spellings or not all(self.spellings):
            raise InvalidRequest("a label must have at least one spelling, and none may be empty", param="labels")


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Asks how likely each label is to come next. No text is made."""

    id: str
    prompt: Prompt
    labels: tuple[Label, ...]
    branch: int | None = None
    """Where the prompt's tokens leave those that other questions begin with as well: what is computed up to there serves
    them all. A function of this prompt alone, as all else that decides how it is computed; None: nothing is shared."""
    model: str = ""
    """The name that the client asked for; empty: none."""
    priority: Literal["foreground", "background"] = "foreground"
    principal: str | None = None
    """The label of the key that asked; never the key."""
    deadline: float | None = None
    """Seconds since the epoch after which nobody waits for the answer; None: no deadline."""

    def __post_init__(self) -> None:
        count = sum(len(label.spellings) for label in self.labels)
        if not 1 <= count <= MAX_SPELLINGS:
            raise InvalidRequest(
                f"{count} spellings of labels, and there must be from 1 to {MAX_SPELLINGS}", param="labels"
            )


class SpellingScore(msgspec.Struct, frozen=True):
    """How likely one continuation is."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of each token, given the prompt and the tokens before it: of the raw distribution at temperature 1."""

    @property
    def logprob(self) -> float:
        """Of the whole continuation."""
        return math.fsum(self.logprobs)


class LabelScore(msgspec.Struct, frozen=True):
    """How likely one label is."""

    spellings: tuple[SpellingScore, ...]

    @property
    def logprob(self) -> float:
        """The log of its spellings' probabilities together; spellings that are equal count once."""
        logs = list({each.ids: each.logprob for each in self.spellings}.values())
        largest = max(logs)
        if largest == -math.inf:
            return largest
        return largest + math.log(math.fsum(math.exp(each - largest) for each in logs))


class Scored(msgspec.Struct, frozen=True):
    """The answer to `Score`, label by label."""

    labels: tuple[LabelScore, ...]
    usage: Usage
    timings: Timings
    top: int | None = None
    """The likeliest next token of the whole vocabulary, the lower id of equals; None: the engine does not tell."""

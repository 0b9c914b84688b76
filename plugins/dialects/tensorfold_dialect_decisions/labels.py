"""Labels to tokens: one distinct token for each, or every token that spells it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from tensorfold.contracts.chat import Tokenizer
from tensorfold.errors import InvalidRequest
from tensorfold_dialect_decisions.questions import LETTERS

__all__ = ["Groups", "Resolver", "SingleTokens", "SpelledTokens"]

Groups: TypeAlias = tuple[tuple[int, ...], ...]
"""For each label the tokens that count for it."""

_TAIL = 64
"""Characters of the prompt's end that a label could merge with."""
_LONGEST = 16
"""Bytes of a token that may spell a label with blanks before it."""
_CASED = frozenset(LETTERS + "0123456789")
_UNCASED = frozenset({"yes", "no"})


class Resolver(Protocol):
    """Finds the tokens of labels."""

    async def resolve(self, tokenizer: Tokenizer, prompt: str, labels: Sequence[str]) -> Groups:
        """The tokens, for labels that stand right behind the prompt's text.

        Raises:
            InvalidRequest: a label has none.
        """
        ...


class SingleTokens:
    """Each label is one distinct token behind the prompt. Made for one request, whose prompts end alike."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, tuple[str, ...]], Groups] = {}

    async def resolve(self, tokenizer: Tokenizer, prompt: str, labels: Sequence[str]) -> Groups:
        """One token for each label."""
        key = prompt[-_TAIL:], tuple(labels)
        if key not in self._found:
            self._found[key] = _single(tokenizer, *key)
        return self._found[key]


def _single(tokenizer: Tokenizer, tail: str, labels: Sequence[str]) -> Groups:
    before = tokenizer.encode(tail, add_special_tokens=False, parse_special=True)
    tokens: list[int] = []
    for label in labels:
        ids = tokenizer.encode(tail + label, add_special_tokens=False, parse_special=True)
        if ids[:-1] != before or ids[-1] in tokens:
            raise InvalidRequest(f"the label {label!r} is not one distinct token where this model answers")
        tokens.append(ids[-1])
    return tuple((token,) for token in tokens)


class SpelledTokens:
    """Every token that spells a label counts, blanks before it included, and for yes and no capitals too.

    Remembers one tokenizer's, for it takes a look at the whole vocabulary.
    """

    def __init__(self) -> None:
        self._known: tuple[Tokenizer, Mapping[str, tuple[int, ...]]] | None = None

    async def resolve(self, tokenizer: Tokenizer, prompt: str, labels: Sequence[str]) -> Groups:
        """All tokens of each label."""
        spelled = await self._spelled(tokenizer)
        if missing := [label for label in labels if label not in spelled]:
            raise InvalidRequest(f"no token of this model spells the label {missing[0]!r}")
        return tuple(spelled[label] for label in labels)

    async def _spelled(self, tokenizer: Tokenizer) -> Mapping[str, tuple[int, ...]]:
        if self._known is None or self._known[0] is not tokenizer:
            self._known = tokenizer, await asyncio.to_thread(_spellings, tokenizer)
        return self._known[1]


def _spellings(tokenizer: Tokenizer) -> Mapping[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for token in range(tokenizer.size):
        if label := _label(tokenizer, token):
            found.setdefault(label, []).append(token)
    return {label: tuple(tokens) for label, tokens in found.items()}


def _label(tokenizer: Tokenizer, token: int) -> str | None:
    """The label that a token spells."""
    data = tokenizer.token_bytes(token)
    if len(data) > _LONGEST or tokenizer.is_special(token):
        return None
    text = data.decode(errors="replace").lstrip()
    if text in _CASED:
        return text
    return folded if (folded := text.casefold()) in _UNCASED else None

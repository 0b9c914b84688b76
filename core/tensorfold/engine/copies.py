"""Drafts by copying: when the last tokens stood in the text before, what followed them then is guessed again.

It costs nothing but a look-up, works for every model, and is right for most of an edit, a quotation or repeated code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorfold.engine.drafts import Drafter

__all__ = ["MATCH", "CopyDrafting"]

MATCH = 8
"""Tokens that must agree before anything is copied: shorter matches guess wrong too often in fresh text."""

_BASE = 0x9E3779B97F4A7C15
_WORD = 0xFFFFFFFFFFFFFFFF
_LEADING = pow(_BASE, MATCH - 1, 1 << 64)
"""What the first token of a match is multiplied by."""


class CopyDrafting:
    """Implements `Drafting` over the prompt and the reply itself."""

    def __init__(self) -> None:
        self._last: _Passages | None = None
        """The choices of one request begin one after the other, and share their prompt's passages."""

    def begin(self, prompt: Sequence[int]) -> Drafter:
        """A drafter for a fresh reply to this prompt."""
        passages = self._last
        if passages is None or passages.prompt is not prompt:
            passages = self._last = _Passages(prompt)
        return _Copier(passages)


class _Passages:
    """Where each run of `MATCH` tokens of a prompt last ended, but for the one at its very end."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self.prompt = prompt
        self.ends: dict[int, int] = {}
        count = len(prompt) - MATCH
        if count > 0:
            tokens = np.asarray(prompt, dtype=np.uint64)
            hashes = np.zeros(count, dtype=np.uint64)
            with np.errstate(over="ignore"):
                for offset in range(MATCH):
                    hashes = hashes * np.uint64(_BASE) + tokens[offset : offset + count]
            # Of equal runs the last one stays.
            self.ends = dict(zip(hashes.tolist(), range(MATCH, MATCH + count), strict=True))


class _Copier:
    """Guesses for one reply."""

    def __init__(self, passages: _Passages) -> None:
        self._passages = passages
        self._tokens: list[int] = list(passages.prompt)
        self._ends: dict[int, int] = {}
        """Runs that end in the reply."""
        self._source: int | None = None
        """The place whose token is guessed next."""
        self._hash = 0
        """Of the last `MATCH` tokens."""
        for token in self._tokens[-MATCH:]:
            self._hash = (self._hash * _BASE + token) & _WORD
        self._look()

    def extend(self, token: int) -> None:
        """One more token; the passage that is being copied goes on if it has this token, too."""
        tokens = self._tokens
        right = self._source is not None and tokens[self._source] == token
        self._source = None if self._source is None or not right else self._source + 1
        leaving = tokens[-MATCH] if len(tokens) >= MATCH else 0
        self._hash = ((self._hash - leaving * _LEADING) * _BASE + token) & _WORD
        tokens.append(token)
        self._look()

    def _look(self) -> None:
        """Find the last tokens in the text before, unless a passage is being copied already; and note them."""
        if len(self._tokens) < MATCH:
            return
        if self._source is None:
            self._source = self._ends.get(self._hash, self._passages.ends.get(self._hash))
        self._ends[self._hash] = len(self._tokens)

    def propose(self, most: int) -> Sequence[int]:
        """What followed; a passage that runs into the present is taken to go on in the same way."""
        if self._source is None:
            return ()
        tokens = self._tokens
        guesses = tokens[self._source : self._source + most]
        while len(guesses) < most:
            guesses.append(guesses[self._source + len(guesses) - len(tokens)])
        return guesses

"""A tokenizer for the smallest vocabularies: a letter a token, so that 64 tokens spell a call, a mark and a JSON value."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

__all__ = ["LETTERS", "LetterTokenizer"]

LETTERS: Final = 'abcdefghijklmnopqrstuvwxyz0123456789<>/=_{}[]":,.-+ \n'


class LetterTokenizer:
    """Implements `contracts.chat.Tokenizer`. What it has no letter for is left out of what it encodes."""

    def __init__(self, size: int, ends: Collection[int]) -> None:
        """`ends` are control tokens; behind the letters come words that are letters twice.

        Raises:
            ValueError: the vocabulary is too small for all letters.
        """
        if size - len(ends) < len(LETTERS):
            raise ValueError(f"{size} tokens, {len(ends)} of which end a reply, do not spell {len(LETTERS)} letters")
        self._ends = frozenset(ends)
        spellings = iter([*LETTERS, *(f"~{number}" for number in range(size))])
        self._spellings = [f"<end {token}>" if token in self._ends else next(spellings) for token in range(size)]
        self._ids = {spelling: token for token, spelling in enumerate(self._spellings)}

    @property
    def size(self) -> int:
        """As it was given."""
        return len(self._spellings)

    def encode(self, text: str, *, add_special_tokens: bool, parse_special: bool) -> list[int]:
        """One id a letter; control tokens are never parsed."""
        return [self._ids[letter] for letter in text if letter in self._ids]

    def token_bytes(self, token: int) -> bytes:
        """Its spelling."""
        return self._spellings[token].encode()

    def is_special(self, token: int) -> bool:
        """Whether it ends a reply."""
        return token in self._ends

    def token_id(self, spelling: str) -> int | None:
        """A letter, a word or a control token."""
        return self._ids.get(spelling)

"""Tokens as a reply's text knows them: what each adds to it, and how a text is spelled in tokens."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import cached_property

from tensorfold.contracts.chat import Tokenizer
from tensorfold.errors import Unsupported

__all__ = ["Spelling"]


class Spelling:
    """Over one tokenizer. Safe to use from several threads: what it works out once never changes."""

    def __init__(self, tokenizer: Tokenizer, in_text: AbstractSet[int]) -> None:
        """`in_text`: control tokens that stay in the text."""
        self._tokenizer = tokenizer
        self._in_text = in_text

    def data(self, token: int) -> bytes:
        """What a token adds to the text."""
        if self._tokenizer.is_special(token) and token not in self._in_text:
            return b""
        return self._tokenizer.token_bytes(token)

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokens that spell exactly this text, marks as control tokens.

        Raises:
            Unsupported: the vocabulary cannot spell it.
        """
        ids = self._tokenizer.encode(text, add_special_tokens=False, parse_special=True)
        wanted = text.encode()
        # Some tokenizers put a blank before every text.
        return tuple(ids) if b"".join(map(self.data, ids)) == wanted else self._longest_first(wanted)

    def _longest_first(self, wanted: bytes) -> tuple[int, ...]:
        tokens, longest = self._tokens
        ids: list[int] = []
        at = 0
        while at < len(wanted):
            sizes = range(min(longest, len(wanted) - at), 0, -1)
            found = next((size for size in sizes if wanted[at : at + size] in tokens), None)
            if found is None:
                raise Unsupported(f"this model's tokenizer cannot spell {wanted.decode(errors='replace')!r}")
            ids.append(tokens[wanted[at : at + found]])
            at += found
        return tuple(ids)

    @cached_property
    def _tokens(self) -> tuple[dict[bytes, int], int]:
        """The lowest token of each spelling, and the length of the longest one in bytes."""
        tokens = {self.data(token): token for token in reversed(range(self._tokenizer.size))}
        tokens.pop(b"", None)
        return tokens, max(map(len, tokens), default=0)

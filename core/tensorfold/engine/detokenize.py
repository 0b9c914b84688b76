"""Tokens to text, a token at a time, never part of a character."""

from __future__ import annotations

import codecs
from collections.abc import Set as AbstractSet

from tensorfold.contracts.chat import Tokenizer

__all__ = ["Detokenizer"]


class Detokenizer:
    """Decodes one reply. What it gives, joined, is what decoding all the bytes at once gives.

    Control tokens add nothing, except those in `spelled`, which add their spelling.
    """

    def __init__(self, tokenizer: Tokenizer, spelled: AbstractSet[int] = frozenset()) -> None:
        self._tokenizer = tokenizer
        self._spelled = spelled
        # Bytes that are no UTF-8 become U+FFFD as soon as that is certain, exactly as in a whole decode.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = False
        """Whether the decoder holds the beginning of a character."""

    def visible(self, token: int) -> bool:
        """Whether the token adds to the text."""
        return token in self._spelled or not self._tokenizer.is_special(token)

    @property
    def whole(self) -> bool:
        """Whether the bytes so far end with a character's end."""
        return not self._begun

    def feed(self, token: int) -> str:
        """The characters that this token completes."""
        if not self.visible(token):
            return ""
        data = self._tokenizer.token_bytes(token)
        if not self._begun and data.isascii():
            return data.decode("ascii")
        text = self._decoder.decode(data)
        self._begun = bool(self._decoder.getstate()[0])
        return text

    def finish(self) -> str:
        """The reply has ended: U+FFFD for a character that was begun, else nothing."""
        return self._decoder.decode(b"", final=True)

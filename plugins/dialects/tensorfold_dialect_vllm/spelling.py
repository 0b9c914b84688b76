"""Tokens as text."""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold.contracts.chat import Tokenizer
from tensorfold.contracts.engine import Services
from tensorfold.errors import Unsupported

__all__ = ["needed_tokenizer", "spelled"]


def needed_tokenizer(services: Services) -> Tokenizer:
    """
    Raises:
        Unsupported: the engine runs elsewhere, and its tokenizer with it.
    """
    if services.tokenizer is None:
        raise Unsupported("this server's engine does not show its tokenizer, so tokens cannot be spelled")
    return services.tokenizer


def spelled(tokenizer: Tokenizer, tokens: Iterable[int]) -> str:
    """The text of tokens, control tokens included; a part of a character reads as U+FFFD."""
    return b"".join(map(tokenizer.token_bytes, tokens)).decode(errors="replace")

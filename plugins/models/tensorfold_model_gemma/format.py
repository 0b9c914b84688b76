"""How Gemma checkpoints converse: by their own template, with reasoning and calls."""

from __future__ import annotations

from tensorfold.contracts.chat import ChatFormat

__all__ = ["chat_format"]


def chat_format() -> ChatFormat:
    """Reasoning in a channel and calls in a notation of their own, for those that were taught them (Gemma 4)."""
    # Imported here, since a family is listed by commands that render nothing.
    from tensorfold.chat.formats import GemmaFormat

    return GemmaFormat()

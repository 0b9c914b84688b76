"""How Qwen3.8-Flash-Next converses: as text, until its reasoning and calls are read."""

from __future__ import annotations

from tensorfold.contracts.chat import ChatFormat

__all__ = ["chat_format"]


def chat_format() -> ChatFormat:
    """Reasoning and calls stay in the text as they are written."""
    # Imported here, since a family is listed by commands that render nothing.
    from tensorfold.chat.plain import PlainFormat

    return PlainFormat()

"""How Qwen3.8 checkpoints converse: by their own template, and in plain text."""

from __future__ import annotations

from tensorfold.contracts.chat import ChatFormat

__all__ = ["chat_format"]


def chat_format() -> ChatFormat:
    """Neither reasoning nor calls have markup that all of them share."""
    # Imported here, since a family is listed by commands that render nothing.
    from tensorfold.chat.plain import PlainFormat

    return PlainFormat()

"""How GLM-5.3 and GLM-5.3-Flash converse: their reasoning and their calls."""

from __future__ import annotations

from tensorfold.contracts.chat import ChatFormat

__all__ = ["chat_format"]


def chat_format() -> ChatFormat:
    """Reasoning in `<think>`, calls as pairs of keys and values."""
    # Imported here, since a family is listed by commands that render nothing.
    from tensorfold.chat.formats import GlmFormat

    return GlmFormat()

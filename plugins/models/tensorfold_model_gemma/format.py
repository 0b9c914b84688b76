"""How Gemma checkpoints converse: Gemma 3 in plain text, Gemma 4 with reasoning and calls."""

from __future__ import annotations

from tensorfold.contracts.chat import ChatFormat
from tensorfold_model_gemma.config import Variant

__all__ = ["chat_format"]


def chat_format(variant: Variant) -> ChatFormat:
    """Gemma 4's channels and calls, for the checkpoints that were taught them."""
    # Imported here, since a family is listed by commands that render nothing.
    if "tools" in variant.capabilities:
        from tensorfold.chat.formats import GemmaFormat

        return GemmaFormat()
    from tensorfold.chat.plain import PlainFormat

    return PlainFormat()

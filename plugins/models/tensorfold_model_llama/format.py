"""How these checkpoints converse: as their own template shows."""

from __future__ import annotations

from tensorfold.contracts.chat import ChatFormat

__all__ = ["chat_format"]


def chat_format() -> ChatFormat:
    """Calls in JSON and reasoning in `<think>`, for those that were taught either; the others write plain text."""
    # Imported here, since a family is listed by commands that render nothing.
    from tensorfold.chat.formats import HermesFormat

    return HermesFormat()

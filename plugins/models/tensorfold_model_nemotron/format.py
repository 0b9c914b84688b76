"""How Nemotron 3 checkpoints converse: their reasoning and their calls."""

from __future__ import annotations

from tensorfold.contracts.chat import ChatFormat

__all__ = ["chat_format"]


def chat_format() -> ChatFormat:
    """Reasoning in `<think>`, calls in XML, with switches of their own."""
    # Imported here, since a family is listed by commands that render nothing.
    from tensorfold.chat.formats import NemotronFormat

    return NemotronFormat()

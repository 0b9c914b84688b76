"""Where a template's messages open, told from ids alone: the control tokens that stand first between two messages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from tensorfold.chat.messages import TemplateMessage
from tensorfold.chat.template import ChatTemplate, Conversation
from tensorfold.errors import InvalidRequest

__all__ = ["message_markers", "message_openings"]

_ROLES: Final[tuple[tuple[str, ...], ...]] = (("user", "assistant", "user"), ("system", "user"), ("user", "assistant"))
"""Conversations that are tried; templates refuse some orders."""


def message_markers(ids: Sequence[int], openings: Collection[int]) -> tuple[int, ...]:
    """The positions of these tokens, in order."""
    return tuple(position for position, token in enumerate(ids) if token in openings) if openings else ()


def message_openings(template: ChatTemplate) -> frozenset[int]:
    """Control tokens that open a message, found by trial; none when the template separates messages by plain text.

    Of the control tokens between two messages the first one is meant, unless it closes every message alike (an
    end-of-turn token that others follow): then the one behind it.
    """
    gaps = [gap for roles in _ROLES for gap in _gaps(template, roles) if gap]
    firsts = {gap[0] for gap in gaps}
    if len(firsts) == 1 and all(len(gap) > 1 for gap in gaps):
        return frozenset(gap[1] for gap in gaps)
    return frozenset(firsts)


def _gaps(template: ChatTemplate, roles: Sequence[str]) -> list[list[int]]:
    """The control tokens behind each message of such a conversation, up to the next one's text or the reply's."""
    texts = [f"xqzopening{number}x" for number in range(len(roles))]
    messages: list[TemplateMessage] = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    try:
        pieces = template.render(Conversation(messages)).pieces
    except InvalidRequest:
        return []
    gaps: list[list[int]] = []
    for piece in pieces:
        if isinstance(piece, int):
            if gaps:
                gaps[-1].append(piece)
        elif any(text in piece for text in texts):
            gaps.append([])
    # Behind a last message of the assistant the template may open another one, or only close it.
    return gaps if roles[-1] == "user" else gaps[:-1]

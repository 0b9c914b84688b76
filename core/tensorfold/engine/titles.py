"""Requests for a conversation's title: clients send one beside the user's own, and nobody waits for it."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tensorfold.ir import Chat, Request, Text

__all__ = ["asks_for_a_title", "in_background"]

LONGEST = 4096
"""Characters of all messages: a title is made from the beginning of a conversation, not from its whole history."""
_TASK: Final = re.compile(r"\s*### Task:\s*[^\n]*\btitle\b", re.IGNORECASE)
"""How Open WebUI's own request begins: it is a lone message of the user's."""


def asks_for_a_title(request: Request) -> bool:
    """Whether a request is one for a session's title: no tools, few characters, and a system message that says so; or
    a lone message that is the task of finding one, with as much of the conversation as it quotes.
    """
    chat = request.prompt
    if not isinstance(chat, Chat) or chat.tools:
        return False
    texts = [(message.role, _text(message.parts)) for message in chat.messages]
    if len(texts) == 1 and texts[0][0] == "user" and _TASK.match(texts[0][1]):
        return True
    if sum(len(text) for _, text in texts) >= LONGEST:
        return False
    return any(role in ("system", "developer") and "title" in text.lower() for role, text in texts)


def in_background(request: Request) -> Request:
    """The request, as background work if it asks for a title."""
    return msgspec.structs.replace(request, priority="background") if asks_for_a_title(request) else request


def _text(parts: tuple[object, ...]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))

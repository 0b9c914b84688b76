"""Which part of a conversation's last message is continued."""

from __future__ import annotations

from typing import Literal, TypeAlias

from tensorfold.errors import InvalidRequest
from tensorfold.ir import Chat, Text, Thinking, ToolCall

__all__ = ["ContinuedPart", "continued_part"]

ContinuedPart: TypeAlias = Literal["thinking", "text"]


def continued_part(chat: Chat) -> ContinuedPart | None:
    """The reasoning or the text of the last message; None: a new one is begun.

    When the request does not say which, it is the reasoning if there is some and no text.

    Raises:
        InvalidRequest: the last message cannot be continued.
    """
    if not chat.continue_final_message:
        return None
    last = chat.messages[-1]
    if last.role != "assistant" or any(isinstance(part, ToolCall) for part in last.parts):
        raise InvalidRequest("only a last message of the assistant, without calls, can be continued", param="messages")
    thinking = any(isinstance(part, Thinking) and part.text for part in last.parts)
    text = any(isinstance(part, Text) and part.text for part in last.parts)
    if chat.continued_part is None:
        return "thinking" if thinking and not text else "text"
    return chat.continued_part

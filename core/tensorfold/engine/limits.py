"""How long a reply may become, and the refusal of what the window cannot hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensorfold.errors import ContextLengthExceeded
from tensorfold.ir import Limits

__all__ = ["ReplyLimit", "reply_limit"]


@dataclass(frozen=True, slots=True)
class ReplyLimit:
    """The most tokens of a reply, and what a reply that reaches it is told to have met."""

    tokens: int
    reason: Literal["length", "window"]


def reply_limit(
    limits: Limits, *, prompt: int, window: int, default: int, param: str, shortage: str = ""
) -> ReplyLimit:
    """The limit of a reply to `prompt` tokens in a window of `window`; `default` is the server's own limit; `shortage` is why the
    window is no longer, for who does not fit it.

    An explicit limit is kept or refused (or cut, where the API asks for that); the default is always cut.

    Raises:
        ContextLengthExceeded: prompt and reply do not fit; `param` names the field of the prompt.
    """
    room = window - prompt
    asked = limits.max_tokens
    if room < 1:
        raise ContextLengthExceeded(
            f"This server's maximum context length is {window} tokens, and the prompt has {prompt}, which leaves no"
            f" room for a reply. Shorten the prompt to at most {window - 1} tokens.{shortage}",
            param=param,
        )
    if asked is None:
        asked = max(default, limits.min_tokens)
    elif asked > room and limits.overflow == "refuse":
        fitting = f" or the prompt to at most {window - asked}" if asked < window else ""
        raise ContextLengthExceeded(
            f"This server's maximum context length is {window} tokens, and this request asks for {prompt + asked}:"
            f" {prompt} in the prompt and {asked} for the reply. Reduce the reply to at most {room} tokens{fitting}.{shortage}",
            param=param,
        )
    return ReplyLimit(room, "window") if asked > room else ReplyLimit(asked, "length")

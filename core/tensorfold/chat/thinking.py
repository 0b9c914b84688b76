"""Whether a reply shall have reasoning, how much, and what becomes of earlier reasoning: all switches of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tensorfold.chat.effort import EFFORTS, EffortLevels
from tensorfold.chat.template import ChatTemplate, Conversation
from tensorfold.contracts.chat import ThinkingMarks
from tensorfold.errors import InvalidRequest, Unsupported
from tensorfold.ir import JSON, Chat, Thinking

__all__ = ["ChatDefaults", "Settled", "can_turn_off", "knows_thinking", "settle"]

_ON: Final = "enable_thinking"
_OTHER: Final = "thinking"
_EFFORT: Final = "reasoning_effort"
_SWITCHES: Final = frozenset({_ON, _OTHER, _EFFORT})

_KEEPING: Final[Mapping[str, JSON]] = {
    "preserve_thinking": True,
    "clear_thinking": False,
    "truncate_history_thinking": False,
    "drop_thinking": False,
}
"""The names under which templates ask whether to keep earlier reasoning, and the answer that keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDefaults:
    """What the server's configuration says for requests that say nothing."""

    effort: str | None = None
    """One of `EFFORTS`; None: the template's own default."""
    variables: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    """For the template (`preserve_thinking`, ...)."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What a request's switches come to."""

    variables: dict[str, JSON]
    """For the template."""
    thinking: bool | None
    """Whether the reply shall have reasoning; None: as the template does by default."""


def settle(chat: Chat, defaults: ChatDefaults, levels: EffortLevels, *, off: bool) -> Settled:
    """The template's variables for a conversation.

    What decides whether there is thinking, the first that is said: `enable_thinking`, `thinking`, the effort, then
    the server's. The template hears an effort only with thinking on, and no switch has another value than it takes.

    Args:
        off: whether the template can render a prompt without thinking.

    Raises:
        Unsupported: thinking is explicitly turned off, and it cannot be.
    """
    own = chat.template_kwargs
    asked = _asked(own)
    if asked is False and not off:
        raise Unsupported(
            "this model's chat template always thinks: thinking cannot be turned off, but reasoning_effort lowers it",
            param="chat_template_kwargs",
        )
    effort = chat.reasoning_effort or _level(own.get(_EFFORT))
    thinking = _first(asked, _wanted(effort), _asked(defaults.variables), _wanted(defaults.effort))
    effort = effort or defaults.effort
    variables: dict[str, JSON] = {}
    if any(isinstance(part, Thinking) for message in chat.messages for part in message.parts):
        variables |= _KEEPING
    for given in (defaults.variables, own):
        variables |= {name: value for name, value in given.items() if name not in _SWITCHES}
    if thinking is not None:
        variables |= {_ON: thinking, _OTHER: thinking}
    if thinking is not False and effort not in (None, "none"):
        variables |= levels.variables(effort)
    return Settled(variables, thinking)


def knows_thinking(template: ChatTemplate, marks: ThinkingMarks | None) -> bool:
    """Whether this template writes anything of reasoning, or has a switch for it."""
    known = () if marks is None else (marks.start, marks.end, _ON)
    return any(word in template.source for word in known)


def can_turn_off(template: ChatTemplate, marks: ThinkingMarks | None) -> bool:
    """Whether this template can render a prompt without thinking: it has a switch, or knows of no thinking."""
    return not knows_thinking(template, marks) or _rendered(template, on=True) != _rendered(template, on=False)


def _rendered(template: ChatTemplate, *, on: bool) -> str | None:
    try:
        variables: dict[str, JSON] = {_ON: on, _OTHER: on}
        return template.render(Conversation([{"role": "user", "content": "x"}], variables=variables)).text
    except InvalidRequest:
        return None


def _asked(variables: Mapping[str, JSON]) -> bool | None:
    """What is said of thinking, in either spelling; other values say nothing."""
    match variables.get(_ON), variables.get(_OTHER):
        case bool() as on, _:
            return on
        case _, bool() as on:
            return on
        case _, {"type": "enabled" | "disabled" as word}:
            return word == "enabled"
        case _:
            return None


def _level(value: JSON) -> str | None:
    return value if isinstance(value, str) and value in EFFORTS else None


def _wanted(effort: str | None) -> bool | None:
    """What an effort says of thinking."""
    return None if effort is None else effort != "none"


def _first(*answers: bool | None) -> bool | None:
    return next((answer for answer in answers if answer is not None), None)

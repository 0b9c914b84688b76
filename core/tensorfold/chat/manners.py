"""What a template cannot render, and what it is given instead.

All system and developer messages at the beginning are one system message. Templates refuse or silently drop one within
the conversation, and some want user and assistant to take turns; agents send everything. A trial when the template is
compiled tells which, so that a conversation's beginning is always rendered alike, however it goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from tensorfold.chat.call_turns import one_call_a_turn, without_stray_results
from tensorfold.chat.messages import TemplateMessage
from tensorfold.chat.template import ChatTemplate, Conversation
from tensorfold.errors import InvalidRequest
from tensorfold.ir import JSON

__all__ = ["Manners", "manners_of"]

_PROBE: Final = "xqzprobe"
_SYSTEM: Final = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Manners:
    """What a template renders."""

    late_system: bool = True
    """A system message after a user's; else it is a user message in its place."""
    several_users: bool = True
    """Two user messages in a row; else they are one, a blank line between their texts."""
    text_arguments: bool = True
    """Arguments of an earlier call that are no object; else they are one that holds the text."""
    several_calls: bool = True
    """Several calls in one turn; else each is a turn of its own."""
    stray_results: bool = True
    """A result behind no call; else it is a user message."""

    def adapt(self, messages: Sequence[TemplateMessage]) -> list[TemplateMessage]:
        """The messages as this template renders them; the given ones are not changed."""
        if not self.several_calls:
            messages = one_call_a_turn(messages)
        if not self.stray_results:
            messages = without_stray_results(messages)
        adapted: list[TemplateMessage] = []
        leading = True
        for message in messages:
            role = message["role"]
            system = role in _SYSTEM
            if system and leading and adapted:
                adapted[-1] = _joined(adapted[-1], message)
                continue
            leading = leading and system
            if system:
                role = "system" if leading or self.late_system else "user"
            if role == "user" and not self.several_users and adapted and adapted[-1]["role"] == "user":
                adapted[-1] = _joined(adapted[-1], message)
            else:
                adapted.append(self._with_arguments({**message, "role": role}))
        return adapted

    def _with_arguments(self, message: TemplateMessage) -> TemplateMessage:
        calls = message.get("tool_calls")
        if self.text_arguments or not isinstance(calls, list):
            return message
        return {**message, "tool_calls": [_as_object(cast("Mapping[str, JSON]", call)) for call in calls]}


def _joined(first: TemplateMessage, second: TemplateMessage) -> TemplateMessage:
    texts = (str(message["content"]) for message in (first, second))
    return {**first, "content": "\n\n".join(text for text in texts if text)}


def _as_object(call: Mapping[str, JSON]) -> JSON:
    """A call whose arguments are an object."""
    function = call["function"]
    if not isinstance(function, dict) or isinstance(function["arguments"], dict):
        return dict(call)
    return {**call, "function": {**function, "arguments": {"arguments": function["arguments"]}}}


def manners_of(template: ChatTemplate) -> Manners:
    """What this template renders, by trial."""
    user, assistant, probe = _message("user"), _message("assistant"), _message("system", _PROBE)
    result: TemplateMessage = {"role": "tool", "content": _PROBE, "name": "f", "tool_call_id": "c"}
    return Manners(
        # Where nothing of a kind is rendered, there is nothing to fall back to but the template's own refusal.
        late_system=_renders(template, [_message("system"), user, assistant, probe, user])
        or not _renders(template, [probe, user]),
        several_users=_renders(template, [user, _message("user", _PROBE)])
        or not _renders(template, [_message("user", _PROBE)]),
        text_arguments=_renders(template, [user, _calling(_PROBE)]),
        several_calls=_renders(template, [user, _calling({"x": "y"}, {"x": _PROBE})])
        or not _renders(template, [user, _calling({"x": _PROBE})]),
        stray_results=_renders(template, [user, result, assistant, user])
        or not _renders(template, [user, _calling({}), result, assistant, user]),
    )


def _calling(*arguments: JSON) -> TemplateMessage:
    calls: list[JSON] = [
        {"id": f"c{at or ''}", "type": "function", "function": {"name": "f", "arguments": each}}
        for at, each in enumerate(arguments)
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _message(role: str, content: str = "x") -> TemplateMessage:
    return {"role": role, "content": content}


def _renders(template: ChatTemplate, messages: list[TemplateMessage]) -> bool:
    try:
        return _PROBE in template.render(Conversation(messages)).text
    except InvalidRequest:
        return False

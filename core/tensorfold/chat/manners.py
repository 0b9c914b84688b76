"""What a template cannot render, and what it is given instead.

Some templates refuse or silently drop a developer message, a second system message, or one within the conversation,
and many write whatever role they are given, though their model has never seen a developer; agents send all three. A trial when the template is compiled tells which, so that a conversation's
beginning is always rendered alike, however it goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tensorfold.chat.messages import TemplateMessage
from tensorfold.chat.template import ChatTemplate, Conversation
from tensorfold.errors import InvalidRequest

__all__ = ["Manners", "manners_of"]

_PROBE: Final = "xqzprobe"


@dataclass(frozen=True, slots=True)
class Manners:
    """What a template renders."""

    developer: bool = True
    """A first message of role developer, which the template knows; else it is a system message."""
    several_systems: bool = True
    """Two system messages at the beginning; else they are one, a blank line between their texts."""
    late_system: bool = True
    """A system message after a user's; else it is a user message in its place."""

    def adapt(self, messages: Sequence[TemplateMessage]) -> list[TemplateMessage]:
        """The messages as this template renders them; the given ones are not changed."""
        adapted: list[TemplateMessage] = []
        leading = True
        for message in messages:
            role = message["role"]
            if role == "developer" and not (self.developer and leading):
                role = "system"
            leading = leading and role in ("system", "developer")
            if role == "system" and not leading and not self.late_system:
                role = "user"
            if leading and adapted and not self.several_systems:
                adapted[-1] = {**adapted[-1], "content": f"{adapted[-1]['content']}\n\n{message['content']}"}
            else:
                adapted.append({**message, "role": role})
        return adapted


def manners_of(template: ChatTemplate) -> Manners:
    """What this template renders, by trial."""
    user, assistant = _message("user"), _message("assistant")
    system, probe = _message("system"), _message("system", _PROBE)
    knows_developer = "developer" in template.source
    manners = Manners(developer=knows_developer and _renders(template, [_message("developer", _PROBE), user]))
    if not _renders(template, [probe, user]):
        # Without any system message there is nothing to fall back to but the template's own refusal.
        return manners
    return replace(
        manners,
        several_systems=_renders(template, [system, probe, user]),
        late_system=_renders(template, [system, user, assistant, probe, user]),
    )


def _message(role: str, content: str = "x") -> TemplateMessage:
    return {"role": role, "content": content}


def _renders(template: ChatTemplate, messages: list[TemplateMessage]) -> bool:
    try:
        return _PROBE in template.render(Conversation(messages)).text
    except InvalidRequest:
        return False

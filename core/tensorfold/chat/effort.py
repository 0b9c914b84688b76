"""How much a model shall think: the API's words, and those that a template has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tensorfold.chat.template import ChatTemplate, Conversation
from tensorfold.errors import InvalidRequest
from tensorfold.ir import JSON

__all__ = ["EFFORTS", "EffortLevels", "effort_levels"]

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The API's words, from no thinking to the most."""
_LEVELS: Final = EFFORTS[1:]
_FULL: Final = "high"
"""What a model does that only has switches for less."""

_NAMED: Final = re.compile(rf"""['"]({"|".join(_LEVELS)})['"]""")
_SWITCH: Final = re.compile(rf"\b(({'|'.join(_LEVELS)})_effort) is defined")
_PROBE: Final = "xqzlevel"


@dataclass(frozen=True, slots=True)
class EffortLevels:
    """The levels that a template names, each with the variables that ask for it."""

    named: Mapping[str, Mapping[str, JSON]] = field(default_factory=dict[str, Mapping[str, JSON]])
    """Empty: none, and it hears every level as it is."""

    def variables(self, effort: str) -> Mapping[str, JSON]:
        """The template's variables for an effort: those of the nearest level that it names, the higher of two."""
        if not self.named:
            return {"reasoning_effort": "xhigh" if effort == "max" else effort}
        wanted = _LEVELS.index(effort)
        return self.named[
            min(self.named, key=lambda level: (abs(_LEVELS.index(level) - wanted), -_LEVELS.index(level)))
        ]


def effort_levels(template: ChatTemplate) -> EffortLevels:
    """The levels that this template names, found in its source and by trial."""
    switches = {level: name for name, level in _SWITCH.findall(template.source)}
    usual = _rendered(template, {})
    found: dict[str, Mapping[str, JSON]] = {
        level: {name: True}
        for level, name in switches.items()
        if _rendered(template, {name: True}) not in (None, usual)
    }
    if found:
        return EffortLevels({_FULL: {}, **found})
    if "reasoning_effort" not in template.source or _PROBE in (_rendered(template, {"reasoning_effort": _PROBE}) or ""):
        return EffortLevels()
    named = sorted(set(_NAMED.findall(template.source)), key=_LEVELS.index)
    asked: dict[str, Mapping[str, JSON]] = {level: {"reasoning_effort": level} for level in named}
    return EffortLevels({level: each for level, each in asked.items() if _rendered(template, each) is not None})


def _rendered(template: ChatTemplate, variables: Mapping[str, JSON]) -> str | None:
    """A short conversation with thinking on; None: the template refuses it."""
    try:
        conversation = Conversation(
            [{"role": "user", "content": "x"}], variables={"enable_thinking": True, **variables}
        )
        return template.render(conversation).text
    except InvalidRequest:
        return None

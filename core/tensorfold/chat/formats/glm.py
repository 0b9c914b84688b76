"""GLM."""

from __future__ import annotations

import re
from typing import Final

from tensorfold.chat.formats.base import MarkupFormat
from tensorfold.chat.replies.markup import Markup
from tensorfold.chat.replies.pair_calls import PairCalls
from tensorfold.contracts.chat import ThinkingMarks

__all__ = ["GlmFormat"]

_OFF: Final = "(enable_thinking is defined and not enable_thinking)"
_OPENING: Final = re.compile(r"(<\|assistant\|>)\{\{-?\s*'<think>'\s*-?\}\}")
"""The generation prompt, where it opens the reasoning whatever is asked for."""
_EFFORT: Final = re.compile(r"\{%-?\s*if effective_reasoning_effort is not none\s*-?%\}")
"""The line that tells the effort."""
_CLEARED: Final = re.compile(r"(if )(loop\.index0 > ns\.last_user_index)( and reasoning_content)")
"""Earlier reasoning, where it is dropped whatever is asked for."""


class GlmFormat(MarkupFormat):
    """Reasoning in `<think>`, which the prompt opens; calls as pairs.

    The reasoning of all earlier turns stays in the prompt, so that what was computed for them stays good, unless the
    request says `clear_thinking`. The vendor's template has no way to turn thinking off: it gets one, which leaves out
    the effort's line and closes the reasoning where it is opened.
    """

    def __init__(self) -> None:
        super().__init__(
            Markup(
                reasoning=ThinkingMarks(),
                calls=PairCalls(),
                controls=frozenset({"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}),
                ends=frozenset({"<|observation|>", "<|user|>"}),
            ),
            variables={"clear_thinking": False},
        )

    def amend(self, template: str) -> str:
        """The template with an off switch, and with `clear_thinking` heard."""
        if "enable_thinking" not in template:
            template = _OPENING.sub(rf"\1{{{{- '<think></think>' if {_OFF} else '<think>' -}}}}", template)
            template = _EFFORT.sub(f"{{%- if effective_reasoning_effort is not none and not {_OFF} -%}}", template)
        if "clear_thinking" not in template:
            template = _CLEARED.sub(r"\1(not clear_thinking or \2)\3", template)
        return template

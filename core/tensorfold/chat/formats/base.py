"""What all formats with markup share."""

from __future__ import annotations

from collections.abc import Mapping

from tensorfold.chat.continuing import continued_part
from tensorfold.chat.replies.markup import Markup
from tensorfold.chat.replies.offered import Offered
from tensorfold.chat.replies.parser import MarkupParser
from tensorfold.contracts.chat import ReplyMarks, ReplyParser
from tensorfold.ir import JSON, Chat, Request

__all__ = ["MarkupFormat"]


class MarkupFormat:
    """Implements `ChatFormat` and `MarkedFormat` over a declared markup; families add what is theirs alone."""

    def __init__(
        self, markup: Markup, *, variables: Mapping[str, JSON] | None = None, thinks: bool | None = None
    ) -> None:
        """`variables`: the template's, where the request says nothing. `thinks`: None when the markup has reasoning."""
        self.markup = markup
        """Its notations."""
        self._variables = dict(variables or {})
        self._thinks = markup.reasoning is not None if thinks is None else thinks

    @property
    def marks(self) -> ReplyMarks:
        """The marks of its replies."""
        return self.markup.marks

    @property
    def thinks(self) -> bool:
        """Whether replies have reasoning when nothing is said about it."""
        return self._thinks

    def begins_call(self, request: Request, text: str) -> bool | None:
        """Whether the text behind a call's opener begins a call of an offered function."""
        return self.markup.begins_call(Offered.by(request), text)

    def amend(self, template: str) -> str:
        """The template as it is."""
        return template

    def template_kwargs(self, chat: Chat) -> Mapping[str, JSON]:
        """The format's variables, under the request's own."""
        effort: dict[str, JSON] = {} if chat.reasoning_effort is None else {"reasoning_effort": chat.reasoning_effort}
        return {**self._variables, **effort, **chat.template_kwargs}

    def parser(self, request: Request, prompt_tail: str) -> ReplyParser:
        """A parser that begins where the prompt ends: within the reasoning, or in the answer."""
        part = continued_part(request.prompt) if isinstance(request.prompt, Chat) else None
        reasoning = self.markup.reasoning
        opened = part is None and reasoning is not None and reasoning.opened_by(prompt_tail)
        return MarkupParser(
            self.markup,
            Offered.by(request),
            opened=opened or part == "thinking",
            continued=part is not None,
            single_call=not request.tool_choice.parallel,
        )

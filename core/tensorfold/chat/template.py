"""One chat template: compiled once, rendered for each conversation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from jinja2 import Template
from jinja2.exceptions import TemplateError, TemplateSyntaxError

from tensorfold.chat.budget import MAX_SECONDS, BudgetExceeded
from tensorfold.chat.continuing import ContinuedPart
from tensorfold.chat.marks import ControlMarks
from tensorfold.chat.messages import THINKING_NAMES, TemplateMessage
from tensorfold.chat.sandbox import TEMPLATE_FILE, TemplateRefusal, compile_template, render
from tensorfold.errors import CheckpointUnsupported, InvalidRequest
from tensorfold.ir import JSON

__all__ = ["ChatTemplate", "Conversation", "Rendered"]


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a template renders."""

    messages: Sequence[TemplateMessage]
    tools: Sequence[JSON] | None = None
    variables: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    """Further ones, such as `enable_thinking`."""
    continued: ContinuedPart | None = None
    """End within this part of the last message instead of opening a new one."""
    generation: bool = True
    """Open a new message for the answer."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered conversation."""

    pieces: tuple[str | int, ...]
    """Ordinary text, and control tokens by id."""
    text: str
    """The same as people read it."""


RESERVED: Final = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
"""Variables that the conversation itself sets."""

_TEMPLATE_FAULTS: Final = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a template's own code can raise over data that it does not expect."""

_ROLES: Final = ("system", "developer", "user", "assistant", "tool")


class ChatTemplate:
    """A template and its control tokens. Rendering changes nothing, and several threads may do it."""

    def __init__(self, source: str, controls: Mapping[str, int], special_tokens: Mapping[str, str]) -> None:
        """`controls`: ids of control tokens by spelling; `special_tokens`: the template's variables for some of them.

        Raises:
            CheckpointUnsupported: the source is no Jinja template.
        """
        self.source = source
        marks = ControlMarks(controls)
        try:
            self._template: Template = compile_template(source, marks.mark)
        except TemplateSyntaxError as error:
            raise CheckpointUnsupported(
                f"the chat template cannot be compiled: line {error.lineno}: {error.message}"
            ) from error
        except (RecursionError, SyntaxError, MemoryError, ValueError, OverflowError) as error:
            raise CheckpointUnsupported(f"the chat template cannot be compiled: {error}") from error
        self._special: Mapping[str, JSON] = {name: marks.mark(spelling) for name, spelling in special_tokens.items()}
        self._marks = marks
        # The trials render with the plain marks, and show which control tokens only rendering spells.
        self._marks = marks.accepting(self._put_together())

    def render(self, conversation: Conversation) -> Rendered:
        """The conversation as the template writes it.

        Raises:
            InvalidRequest: the template refuses it, in its own words, or cannot render it.
        """
        marks = self._marks
        messages = [marks.guard(dict(message)) for message in conversation.messages]
        if conversation.continued is not None:
            messages = _with_cut(messages, conversation.continued, marks.cut)
        tools: JSON = None if conversation.tools is None else marks.guard([*conversation.tools])
        own = {name: marks.guard(value) for name, value in conversation.variables.items()}
        clash = sorted(RESERVED & own.keys())
        if clash:
            raise InvalidRequest(
                f"{clash[0]} is set by the conversation itself, and not by a template variable",
                param="chat_template_kwargs",
            )
        generation = conversation.generation and conversation.continued is None
        text = self._text(messages, tools, own, generation=generation)
        if conversation.continued is not None:
            text = _until_cut(text, marks.cut, _continued_text(conversation))
        pieces = marks.pieces(text)
        return Rendered(pieces, marks.spell(pieces))

    def _text(self, messages: JSON, tools: JSON, own: Mapping[str, JSON], *, generation: bool) -> str:
        variables = {
            **self._special,
            **own,
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": generation,
        }
        try:
            return render(self._template, variables)
        except TemplateRefusal as error:
            words = self._marks.reveal(error.message or "")
            raise InvalidRequest(f"the chat template refuses the conversation: {words}", param="messages") from error
        except BudgetExceeded as error:
            raise InvalidRequest(str(error), param="messages") from error
        except _TEMPLATE_FAULTS as error:
            # Python's own words tell a caller nothing; the cause goes along for the log.
            line = _line(error.__traceback__)
            at = "" if line is None else f", in its line {line}"
            raise InvalidRequest(f"the chat template cannot render this conversation{at}", param="messages") from error

    def _put_together(self) -> frozenset[str]:
        """Control tokens that the template writes without any of its texts spelling them, found by trial."""
        found: frozenset[str] = frozenset()
        end = time.thread_time() + MAX_SECONDS
        parameters: JSON = {"type": "object", "properties": {}}
        offered: list[JSON] = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
        for trial in _trials():
            for tools in (None, offered):
                if time.thread_time() > end:
                    return found
                try:
                    found |= self._marks.spelled(self._text(trial, tools, {}, generation=True))
                except InvalidRequest as error:
                    if isinstance(error.__cause__, BudgetExceeded):
                        return found  # it would take as long over every other one
        return found


def _trials() -> list[list[JSON]]:
    """Conversations that together show every role, where the template takes it."""
    call: JSON = {"type": "function", "id": "c", "function": {"name": "f", "arguments": {"a": "b"}}}
    calling: JSON = {"role": "assistant", "content": "", "tool_calls": [call]}
    plain: dict[str, JSON] = {
        role: {"role": role, "content": "x", **({"tool_call_id": "c", "name": "f"} if role == "tool" else {})}
        for role in _ROLES
    }
    user, assistant, tool = plain["user"], plain["assistant"], plain["tool"]
    return [
        [user],
        [plain["system"], user],
        [plain["developer"], user],
        [user, assistant, user],
        [user, calling, tool],
        [user, calling, tool, assistant, user],
    ]


def _with_cut(messages: list[JSON], part: ContinuedPart, cut: str) -> list[JSON]:
    """The messages with a mark at the end of the last one's text, or of its reasoning."""
    last = messages[-1]
    if not isinstance(last, dict) or last.get("role") != "assistant" or "tool_calls" in last:
        raise InvalidRequest("only a last message of the assistant, without calls, can be continued", param="messages")
    names = ("content",) if part == "text" else THINKING_NAMES
    # The blank shows whether the template trims texts.
    return [*messages[:-1], {**last, **{name: f"{last.get(name, '')}{cut} " for name in names}}]


def _continued_text(conversation: Conversation) -> str:
    last = conversation.messages[-1]
    return str(last.get("content" if conversation.continued == "text" else THINKING_NAMES[0], ""))


def _until_cut(text: str, cut: str, continued: str) -> str:
    """The rendering up to the mark, trimmed if the template trims what is continued."""
    before, found, after = text.rpartition(cut)
    if not found:
        raise InvalidRequest(
            "the chat template leaves the last message out, so it cannot be continued", param="messages"
        )
    return before if after.startswith(" ") else before.removesuffix(continued[len(continued.rstrip()) :])


def _line(traceback: TracebackType | None) -> int | None:
    """The template's line in which an error was raised."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == TEMPLATE_FILE:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line

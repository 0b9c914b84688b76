"""A request's prompt as the ids that the engine runs, checked: template, tokenizer, vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from tensorfold.chat.continuing import continued_part
from tensorfold.chat.effort import EffortLevels, effort_levels
from tensorfold.chat.framing import frame_of
from tensorfold.chat.manners import Manners, manners_of
from tensorfold.chat.messages import template_messages, template_tools
from tensorfold.chat.openings import message_markers, message_openings
from tensorfold.chat.template import ChatTemplate, Conversation
from tensorfold.chat.thinking import ChatDefaults, can_turn_off, knows_thinking, settle
from tensorfold.contracts.chat import (
    CallFrame,
    ChatFormat,
    ChatTemplates,
    MarkedFormat,
    PieceEncoder,
    ReplyMarks,
    Tokenizer,
)
from tensorfold.contracts.engine import PreparedPrompt
from tensorfold.errors import ContextLengthExceeded, InvalidRequest
from tensorfold.ir import Chat, Prompt, TextPrompt, TokensPrompt

__all__ = ["PromptBuilder"]

_SHORTENED: Final = 4
"""A tokenizer's normalizer makes a text at most three times shorter (jamo to syllables); one more to be safe."""

_TOOL_USE: Final = "tool_use"
"""The named template that is taken when tools are offered."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A compiled template and what it cannot render."""

    template: ChatTemplate
    manners: Manners
    levels: EffortLevels
    thinks: bool
    """Whether it knows of reasoning."""
    off: bool
    """Whether thinking can be turned off."""
    frame: CallFrame | None
    """What it writes around a call's name."""

    @staticmethod
    def of(source: str, controls: Mapping[str, int], special_tokens: Mapping[str, str], format: ChatFormat) -> _Ready:
        marks = ReplyMarks()
        if isinstance(format, MarkedFormat):
            source, marks = format.amend(source), format.marks
        template = ChatTemplate(source, controls, special_tokens)
        return _Ready(
            template,
            manners_of(template),
            effort_levels(template),
            knows_thinking(template, marks.thinking),
            can_turn_off(template, marks.thinking),
            marks.frame if marks.call is None else frame_of(template, marks.call) or marks.frame,
        )


class PromptBuilder:
    """Prepares prompts. Nothing of it changes, and several threads may use it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        templates: ChatTemplates,
        format: ChatFormat,
        *,
        vocabulary: int,
        window: int | None = None,
        defaults: ChatDefaults | None = None,
    ) -> None:
        """`vocabulary`: ids from 0 to vocabulary - 1 can be run. `window`: texts that are too long for so many tokens,
        however they are cut, are refused without being tokenized, which takes seconds for the longest bodies.

        Raises:
            CheckpointUnsupported: a chat template cannot be compiled.
        """
        self._tokenizer = tokenizer
        self._encoder = tokenizer if isinstance(tokenizer, PieceEncoder) else None
        self._format = format
        self._vocabulary = vocabulary
        self._window = window
        self._longest = _longest(tokenizer) if window is not None else 0
        controls = _controls(tokenizer)
        special = templates.special_tokens
        self._defaults = ChatDefaults() if defaults is None else defaults
        self._default = None if templates.default is None else _Ready.of(templates.default, controls, special, format)
        tool_use = templates.named.get(_TOOL_USE)
        self._tool_use = self._default if tool_use is None else _Ready.of(tool_use, controls, special, format)
        ready = {each.template.source: each for each in (self._default, self._tool_use) if each is not None}
        self._openings = frozenset(id for each in ready.values() for id in message_openings(each.template))

    @property
    def call_frame(self) -> CallFrame | None:
        """What the template writes around a call's name when tools are offered; None: this model makes no calls."""
        return None if self._tool_use is None else self._tool_use.frame

    def prepare(self, prompt: Prompt) -> PreparedPrompt:
        """The ids of a prompt, and its text.

        Raises:
            InvalidRequest: the template refuses it, it is empty, it holds half a character, or an id that does not exist.
            ContextLengthExceeded: it is far too long for the window.
            Unsupported: it holds what this model cannot read.
        """
        match prompt:
            case Chat():
                return self._chat(prompt)
            case TextPrompt(text, add_special_tokens):
                self._check_text(text, "prompt")
                ids = self._tokenizer.encode(text, add_special_tokens=add_special_tokens, parse_special=True)
                return self._prepared(self._checked(ids, "prompt"), text)
            case TokensPrompt(ids):
                return self._prepared(self._checked(ids, "prompt"), None)

    def _prepared(self, ids: tuple[int, ...], text: str | None, thinking: bool | None = None) -> PreparedPrompt:
        # Prompts of every kind are marked alike, so that equal ids are computed alike.
        return PreparedPrompt(ids, text, message_markers(ids, self._openings), thinking)

    def _chat(self, chat: Chat) -> PreparedPrompt:
        ready = self._tool_use if chat.tools else self._default
        if ready is None:
            raise InvalidRequest(
                "this model's checkpoint has no chat template: ask for a completion of a text instead", param="messages"
            )
        settled = settle(chat, self._defaults, ready.levels, off=ready.off)
        resolved = msgspec.structs.replace(chat, template_kwargs=settled.variables, reasoning_effort=None)
        rendered = ready.template.render(
            Conversation(
                ready.manners.adapt(template_messages(chat.messages)),
                template_tools(chat.tools),
                self._format.template_kwargs(resolved),
                continued_part(chat),
                chat.add_generation_prompt,
            )
        )
        self._check_text(rendered.text, "messages")
        ids = self._checked(self._encoded(rendered.pieces), "messages")
        return self._prepared(ids, rendered.text, settled.thinking if ready.thinks else False)

    def _encoded(self, pieces: Sequence[str | int]) -> list[int]:
        if self._encoder is not None:
            return self._encoder.encode_pieces(pieces)
        ids: list[int] = []
        for piece in pieces:
            if isinstance(piece, int):
                ids.append(piece)
            else:
                ids += self._tokenizer.encode(piece, add_special_tokens=False, parse_special=False)
        return ids

    def _check_text(self, text: str, param: str) -> None:
        """Refuse text that is no Unicode (JSON can spell half of a surrogate pair), or that no window of ours holds."""
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                f"{param} holds half of a character (U+{ord(text[error.start]):04X}, an unpaired surrogate)",
                param=param,
            ) from error
        if self._window is not None and size > _SHORTENED * self._longest * self._window:
            least = size // (_SHORTENED * self._longest)
            raise ContextLengthExceeded(
                f"This server's maximum context length is {self._window} tokens, and these {size} bytes take at least"
                f" {least}: shorten the {param}",
                param=param,
            )

    def _checked(self, ids: Sequence[int], param: str) -> tuple[int, ...]:
        if not ids:
            raise InvalidRequest(f"{param} is empty: it must hold at least one token", param=param)
        if max(ids) >= self._vocabulary:
            wrong = next(token for token in ids if token >= self._vocabulary)
            raise InvalidRequest(
                f"{param} holds token id {wrong}, and this model's ids go from 0 to {self._vocabulary - 1}", param=param
            )
        return tuple(ids)


def _controls(tokenizer: Tokenizer) -> dict[str, int]:
    """Ids of the control tokens by their spelling."""
    special = (token for token in range(tokenizer.size) if tokenizer.is_special(token))
    return {tokenizer.token_bytes(token).decode(errors="replace"): token for token in special}


def _longest(tokenizer: Tokenizer) -> int:
    """The most bytes that one token stands for."""
    return max((len(tokenizer.token_bytes(token)) for token in range(tokenizer.size)), default=1)

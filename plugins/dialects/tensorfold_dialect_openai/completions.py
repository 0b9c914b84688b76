"""`POST /v1/completions`: raw text or token ids, without a chat template."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

import msgspec
from msgspec import UNSET

from tensorfold.contracts.dialect import DecodeContext, Exchange, StreamEncoder
from tensorfold.errors import DecodeError
from tensorfold.ir import (
    Answer,
    ChoiceAnswer,
    Prompt,
    Stopped,
    StopReason,
    TextDelta,
    TextPrompt,
    ThinkingDelta,
    TokensPrompt,
    ToolCallDelta,
)
from tensorfold.wire import BodyDecoder, Int64, check_body, decode_value, read_prompts
from tensorfold_dialect_openai.chat import ChatCodec
from tensorfold_dialect_openai.controls import Controls, StreamOptions, build_requests
from tensorfold_dialect_openai.errors import OpenAIErrors
from tensorfold_dialect_openai.exchange import CompletionExchange
from tensorfold_dialect_openai.logprobs import TextLogprobsWriter, wanted_in_text
from tensorfold_dialect_openai.replies import (
    Head,
    TextChoice,
    eos_reason,
    finish_reason,
    whole_answer,
)
from tensorfold_dialect_openai.stream import KEEP_ALIVE, EventEncoder
from tensorfold_dialect_openai.unserved import COMPLETION_FIELDS

__all__ = ["CompletionBody", "CompletionsCodec", "CompletionsExchange"]

_ABSENT = msgspec.Raw(b"")
_SOME_LIST = re.compile(rb"\s*\[\s*[^\s\]]")


class Peek(msgspec.Struct):
    """What decides how a body is read."""

    messages: msgspec.Raw = _ABSENT


class CompletionBody(Controls, kw_only=True):
    """A request's body."""

    prompt: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    """Text, token ids, or a list of either."""
    add_special_tokens: bool | None = None
    """Whether the tokenizer adds its own to a text; null is false."""
    logprobs: Int64 | bool | None = None
    """Up to 20 alternatives a token."""
    echo: bool | None = None
    """Begin each reply with its prompt."""


class CompletionsCodec(OpenAIErrors):
    """Decodes completion bodies; one with messages is a chat, and is answered as one."""

    stream_media_type = "text/event-stream"
    keep_alive = KEEP_ALIVE

    def __init__(self) -> None:
        self._peeks = msgspec.json.Decoder(Peek)
        self._bodies = BodyDecoder(CompletionBody, COMPLETION_FIELDS)
        self._chat = ChatCodec()

    def decode(self, body: bytes, context: DecodeContext) -> Exchange:
        """Prompts to continue."""
        if _SOME_LIST.match(decode_value(self._peeks, check_body(body)).messages):
            return self._chat.decode(body, context)
        wanted = self._bodies.decode(body)
        if bytes(wanted.prompt) in (b"", b"null"):
            raise DecodeError("prompt is missing", param="prompt")
        special = bool(wanted.add_special_tokens)
        prompts = tuple(_prompt(prompt, special) for prompt in read_prompts(wanted.prompt))
        requests = build_requests(
            prompts, wanted, context, logprobs=wanted_in_text(wanted.logprobs), echo=bool(wanted.echo)
        )
        return CompletionsExchange(requests, wanted, context)


def _prompt(prompt: str | tuple[int, ...], special: bool) -> Prompt:
    match prompt:
        case str():
            if not prompt and not special:
                raise DecodeError("prompt is an empty text, and there is nothing to continue", param="prompt")
            return TextPrompt(prompt, add_special_tokens=special)
        case ids:
            return TokensPrompt(ids)


class CompletionsExchange(CompletionExchange):
    """Prompts and the way to answer them; choice `i * n + j` is reply `j` to prompt `i`."""

    ids, whole, piece = "cmpl", "text_completion", "text_completion"

    def answer(self, answer: Answer) -> bytes:
        """A `text_completion`."""
        choices = [_choice(index, choice, self.logprobs) for index, choice in enumerate(answer.choices)]
        return whole_answer(self.head(self.whole), choices, answer)

    def encoder(self) -> StreamEncoder:
        """A stream of `text_completion`."""
        return CompletionEncoder(self.head(self.piece), self.options, logprobs=self.logprobs)


def _choice(index: int, choice: ChoiceAnswer, logprobs: bool) -> TextChoice:
    # A raw reply is all text: what a family would call reasoning belongs to it.
    text = choice.thinking + choice.text
    tokens = (*choice.thinking_tokens, *choice.tokens)
    written = TextLogprobsWriter().write(tokens) if logprobs else None
    return _ended(TextChoice(index, text, logprobs=written), choice.reason, choice.detail, choice.ended_by)


def _ended(choice: TextChoice, reason: StopReason, detail: str | None, ended_by: str | None) -> TextChoice:
    choice.finish_reason = finish_reason(reason)
    choice.stop_reason = detail or UNSET
    choice.stop_str = ended_by or UNSET
    choice.eos_reason = eos_reason(reason)
    return choice


class CompletionEncoder(EventEncoder[TextChoice]):
    """Text as it comes."""

    def __init__(self, head: Head, options: StreamOptions, *, logprobs: bool = False) -> None:
        super().__init__(head, options, logprobs=logprobs)
        self._writers: defaultdict[int, TextLogprobsWriter] = defaultdict(TextLogprobsWriter)

    def pieces(self, delta: TextDelta | ThinkingDelta | ToolCallDelta) -> Iterable[TextChoice]:
        """One event a delta; raw replies have no calls."""
        if not isinstance(delta, ToolCallDelta) and (delta.text or delta.tokens):
            logprobs = self._writers[delta.choice].write(delta.tokens) if self.logprobs else None
            yield TextChoice(delta.choice, delta.text, logprobs=logprobs)

    def ending(self, stopped: Stopped) -> Iterable[TextChoice]:
        """The finish reason on an empty text."""
        yield _ended(TextChoice(stopped.choice, ""), stopped.reason, stopped.detail, stopped.ended_by)

    def nothing(self) -> TextChoice:
        """No text."""
        return TextChoice(0, "")

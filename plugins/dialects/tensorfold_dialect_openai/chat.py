"""`POST /v1/chat/completions`."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

import msgspec
from msgspec import UNSET

from tensorfold.contracts.dialect import DecodeContext, Exchange, StreamEncoder
from tensorfold.errors import InvalidRequest
from tensorfold.ir import (
    Answer,
    ChoiceAnswer,
    Stopped,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from tensorfold.wire import BodyDecoder, Int64, decode_value
from tensorfold.wire.chats import ChatFields, read_chat
from tensorfold_dialect_openai.controls import Controls, build_requests
from tensorfold_dialect_openai.errors import OpenAIErrors
from tensorfold_dialect_openai.exchange import CompletionExchange
from tensorfold_dialect_openai.logprobs import chat_logprobs, wanted_in_chat
from tensorfold_dialect_openai.replies import (
    CallDelta,
    CallFunction,
    CallMessage,
    ChatChoice,
    ChunkChoice,
    Delta,
    ReplyMessage,
    eos_reason,
    finish_reason,
    whole_answer,
)
from tensorfold_dialect_openai.stream import KEEP_ALIVE, EventEncoder
from tensorfold_dialect_openai.unserved import CHAT_FIELDS

__all__ = ["ChatCodec", "ChatControls", "ChatExchange"]


class ChatControls(Controls, kw_only=True):
    """What a body asks of its replies; `wire.chats.ChatFields` are the conversation in the same body."""

    logprobs: bool | None = None
    top_logprobs: Int64 | None = None
    """Up to 20 alternatives a token, with `logprobs`."""


class ChatCodec(OpenAIErrors):
    """Decodes chat bodies."""

    stream_media_type = "text/event-stream"
    keep_alive = KEEP_ALIVE

    def __init__(self) -> None:
        self._controls = BodyDecoder(ChatControls, CHAT_FIELDS)
        self._chats = msgspec.json.Decoder(ChatFields)

    def decode(self, body: bytes, context: DecodeContext) -> Exchange:
        """A conversation to continue."""
        # In two passes, for structs have one base; the first one has checked the body.
        wanted = self._controls.decode(body)
        chat, choice = read_chat(decode_value(self._chats, body.removeprefix(codecs.BOM_UTF8)))
        if not (chat.add_generation_prompt or chat.continue_final_message):
            raise InvalidRequest(
                "without a generation prompt there is nothing to answer: leave add_generation_prompt out, or continue"
                " the final message",
                param="add_generation_prompt",
            )
        logprobs = wanted_in_chat(wanted.logprobs, wanted.top_logprobs)
        requests = build_requests((chat,), wanted, context, tool_choice=choice, logprobs=logprobs)
        return ChatExchange(requests, wanted, context)


class ChatExchange(CompletionExchange):
    """One conversation and the way to answer it."""

    ids, whole, piece = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def answer(self, answer: Answer) -> bytes:
        """A `chat.completion`."""
        choices = [_choice(index, choice, self.logprobs) for index, choice in enumerate(answer.choices)]
        return whole_answer(self.head(self.whole), choices, answer)

    def encoder(self) -> StreamEncoder:
        """A stream of `chat.completion.chunk`."""
        return ChatEncoder(self.head(self.piece), self.options, logprobs=self.logprobs)


def _choice(index: int, choice: ChoiceAnswer, logprobs: bool) -> ChatChoice:
    calls = [CallMessage(call.id, "function", CallFunction(call.name, call.arguments)) for call in choice.calls]
    message = ReplyMessage(
        role="assistant",
        content=None if calls and not choice.text else choice.text,
        reasoning_content=choice.thinking or UNSET,
        tool_calls=calls or UNSET,
    )
    return ChatChoice(
        index,
        message,
        finish_reason(choice.reason),
        logprobs=chat_logprobs(choice.tokens) if logprobs else None,
        stop_reason=choice.detail or UNSET,
        eos_reason=eos_reason(choice.reason),
    )


class ChatEncoder(EventEncoder[ChunkChoice]):
    """Every choice begins with an event that has the role alone."""

    _opened: frozenset[int] = frozenset()

    def pieces(self, delta: TextDelta | ThinkingDelta | ToolCallDelta) -> Iterable[ChunkChoice]:
        """The role first, then what the delta adds."""
        yield from self._opening(delta.choice)
        match delta:
            case TextDelta(choice, text, tokens) if text or tokens:
                logprobs = chat_logprobs(tokens) if self.logprobs else None
                yield ChunkChoice(choice, Delta(content=text), logprobs=logprobs)
            case ThinkingDelta(choice, text) if text:
                yield ChunkChoice(choice, Delta(reasoning_content=text))
            case ToolCallDelta(choice):
                yield ChunkChoice(choice, Delta(tool_calls=[_call(delta)]))
            case _:
                pass

    def ending(self, stopped: Stopped) -> Iterable[ChunkChoice]:
        """The finish reason on an empty delta."""
        yield from self._opening(stopped.choice)
        yield ChunkChoice(
            stopped.choice,
            Delta(),
            finish_reason=finish_reason(stopped.reason),
            stop_reason=stopped.detail or UNSET,
            eos_reason=eos_reason(stopped.reason),
        )

    def nothing(self) -> ChunkChoice:
        """No role either: SDKs join the texts of all events, and a role that comes twice is no role."""
        return ChunkChoice(0, Delta())

    def _opening(self, choice: int) -> Iterable[ChunkChoice]:
        if choice not in self._opened:
            self._opened |= {choice}
            yield ChunkChoice(choice, Delta(role="assistant", content=""))


def _call(delta: ToolCallDelta) -> CallDelta:
    if delta.id is None:
        return CallDelta(delta.index, CallFunction(arguments=delta.arguments))
    function = CallFunction(delta.name or "", delta.arguments)
    return CallDelta(delta.index, function, id=delta.id, type="function")

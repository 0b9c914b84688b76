"""`POST /api/chat`."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from tensorfold.contracts.dialect import DecodeContext, Exchange, StreamEncoder
from tensorfold.errors import DecodeError
from tensorfold.ir import Answer, Chat, Request, ToolCall
from tensorfold.wire import BodyDecoder
from tensorfold.wire.chats import WireTool, read_tools
from tensorfold_dialect_ollama.errors import OllamaErrors
from tensorfold_dialect_ollama.messages import WireMessage, read_messages
from tensorfold_dialect_ollama.options import Shared, build_request, read_think
from tensorfold_dialect_ollama.replies import CallBody, LineEncoder, Reply, calls_of, created_at, finish

__all__ = ["ChatBody", "ChatCodec"]


class ChatBody(Shared, kw_only=True):
    """A request's body."""

    messages: list[WireMessage]
    tools: list[WireTool] | None = None


class ReplyMessage(msgspec.Struct):
    """What a line adds, or a whole reply."""

    role: str
    content: str
    thinking: str | UnsetType = UNSET
    tool_calls: list[CallBody] | UnsetType = UNSET


class ChatReply(Reply, kw_only=True):
    """An answer."""

    message: ReplyMessage


class ChatCodec(OllamaErrors):
    """Decodes chat bodies."""

    stream_media_type = "application/x-ndjson"
    keep_alive = b""

    def __init__(self) -> None:
        self._bodies = BodyDecoder(ChatBody)

    def decode(self, body: bytes, context: DecodeContext) -> Exchange:
        """A conversation to continue."""
        wanted = self._bodies.decode(body)
        if not wanted.messages:
            raise DecodeError("messages must hold at least one message", param="messages")
        effort, variables = read_think(wanted.think)
        chat = Chat(
            messages=read_messages(wanted.messages),
            tools=read_tools(wanted.tools or []),
            template_kwargs=variables,
            reasoning_effort=effort,
        )
        return ChatExchange(build_request(chat, wanted, context), wanted.stream is not False, context)


class ChatExchange:
    """One conversation and the way to answer it."""

    def __init__(self, request: Request, stream: bool, context: DecodeContext) -> None:
        self.requests = (request,)
        self.stream = stream
        self._context = context

    def answer(self, answer: Answer) -> bytes:
        """One object."""
        (choice,) = answer.choices
        reply = _reply(self._context, choice.text, choice.thinking, choice.calls)
        finish(reply, choice.reason, answer.usage, answer.timings, answer.token_sha[0])
        return msgspec.json.encode(reply)

    def encoder(self) -> StreamEncoder:
        """One object a line."""
        return ChatEncoder(self._context)


def _reply(context: DecodeContext, text: str, thinking: str, calls: tuple[ToolCall, ...], first: int = 0) -> ChatReply:
    message = ReplyMessage("assistant", text, thinking or UNSET, calls_of(calls, first))
    return ChatReply(model=context.model.id, created_at=created_at(context), message=message)


class ChatEncoder(LineEncoder):
    """Lines with messages."""

    def __init__(self, context: DecodeContext) -> None:
        super().__init__()
        self._context = context

    def line(self, text: str, thinking: str, calls: tuple[ToolCall, ...], first: int = 0) -> ChatReply:
        """A reply that adds this."""
        return _reply(self._context, text, thinking, calls, first)

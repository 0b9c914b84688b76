"""`POST /v1/messages`."""

from __future__ import annotations

from tensorfold.contracts.dialect import DecodeContext, Exchange, StreamEncoder
from tensorfold.ir import Answer, Request
from tensorfold.wire import BodyDecoder
from tensorfold_dialect_anthropic.body import MessagesBody, build_request
from tensorfold_dialect_anthropic.errors import AnthropicErrors
from tensorfold_dialect_anthropic.replies import MessageHead, head_of, whole_message
from tensorfold_dialect_anthropic.stream import KEEP_ALIVE, MessageEncoder
from tensorfold_dialect_anthropic.unserved import MESSAGES_FIELDS

__all__ = ["MessagesCodec", "MessagesExchange"]


class MessagesCodec(AnthropicErrors):
    """Decodes bodies of Messages."""

    stream_media_type = "text/event-stream"
    keep_alive = KEEP_ALIVE

    def __init__(self) -> None:
        self._bodies = BodyDecoder(MessagesBody, MESSAGES_FIELDS)

    def decode(self, body: bytes, context: DecodeContext) -> Exchange:
        """A conversation to continue."""
        wanted = self._bodies.decode(body)
        return MessagesExchange(build_request(wanted, context.request_id), bool(wanted.stream), head_of(context))


class MessagesExchange:
    """One conversation and the way to answer it."""

    def __init__(self, request: Request, stream: bool, head: MessageHead) -> None:
        self.requests = (request,)
        self.stream = stream
        self._head = head

    def answer(self, answer: Answer) -> bytes:
        """A `message`."""
        return whole_message(self._head, answer)

    def encoder(self) -> StreamEncoder:
        """A stream of events, from `message_start` to `message_stop`."""
        return MessageEncoder(self._head)

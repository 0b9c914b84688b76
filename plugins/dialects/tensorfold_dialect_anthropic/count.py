"""`POST /v1/messages/count_tokens`: the prompt of the same body, rendered and counted, without a reply."""

from __future__ import annotations

import msgspec

from tensorfold.contracts.dialect import DecodeContext, Inquiry
from tensorfold.contracts.engine import Services
from tensorfold.ir import Request
from tensorfold.wire import BodyDecoder
from tensorfold_dialect_anthropic.body import PromptBody, prompt_request
from tensorfold_dialect_anthropic.errors import AnthropicErrors
from tensorfold_dialect_anthropic.unserved import MESSAGES_FIELDS

__all__ = ["CountCodec"]


class Count(msgspec.Struct):
    """The answer."""

    input_tokens: int


class CountCodec(AnthropicErrors):
    """Decodes bodies to count."""

    def __init__(self) -> None:
        self._bodies = BodyDecoder(PromptBody, MESSAGES_FIELDS)

    def decode(self, body: bytes, context: DecodeContext) -> Inquiry:
        """A conversation to count."""
        return CountInquiry(prompt_request(self._bodies.decode(body), context.request_id))


class CountInquiry:
    """One conversation."""

    def __init__(self, request: Request) -> None:
        self._request = request

    async def answer(self, services: Services) -> bytes:
        """`{"input_tokens": n}`."""
        prepared = await services.engine.prepare(self._request)
        return msgspec.json.encode(Count(len(prepared.ids)))

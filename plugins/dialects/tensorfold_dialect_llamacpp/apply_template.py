"""`POST /apply-template`: the text that a chat's messages render to."""

from __future__ import annotations

import msgspec

from tensorfold.contracts.dialect import DecodeContext, Inquiry
from tensorfold.contracts.engine import Services
from tensorfold.ir import Request
from tensorfold.wire import BodyDecoder
from tensorfold.wire.chats import ChatFields, read_chat
from tensorfold.wire.envelope import CommonErrors

__all__ = ["ApplyTemplateCodec"]


class Rendered(msgspec.Struct):
    """The answer."""

    prompt: str


class ApplyTemplateCodec(CommonErrors):
    """Decodes conversations."""

    def __init__(self) -> None:
        self._bodies = BodyDecoder(ChatFields, {"chat_template": ()})

    def decode(self, body: bytes, context: DecodeContext) -> Inquiry:
        """What to render."""
        chat, choice = read_chat(self._bodies.decode(body))
        return ApplyTemplateInquiry(Request(id=context.request_id, prompt=chat, tool_choice=choice))


class ApplyTemplateInquiry:
    """One conversation."""

    def __init__(self, request: Request) -> None:
        self._request = request

    async def answer(self, services: Services) -> bytes:
        """`{"prompt": ...}`."""
        prepared = await services.engine.prepare(self._request)
        return msgspec.json.encode(Rendered(prepared.text or ""))

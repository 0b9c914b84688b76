"""`POST /tokenize`: the ids of a prompt, or those that a chat request's messages render to."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from tensorfold.contracts.dialect import DecodeContext, Inquiry
from tensorfold.contracts.engine import Services
from tensorfold.errors import DecodeError, Unsupported
from tensorfold.ir import JSON, Request, TextPrompt
from tensorfold.wire import BodyDecoder, check_body, decode_value
from tensorfold.wire.chats import ChatFields, read_chat
from tensorfold.wire.envelope import CommonErrors
from tensorfold_dialect_vllm.spelling import needed_tokenizer, spelled

__all__ = ["ChatBody", "TextBody", "TokenizeCodec"]

_ABSENT = msgspec.Raw(b"")


class Peek(msgspec.Struct):
    """What tells the kinds of bodies apart."""

    prompt: msgspec.Raw = _ABSENT
    messages: msgspec.Raw = _ABSENT
    content: msgspec.Raw = _ABSENT


class TextBody(msgspec.Struct):
    """A text to tokenize."""

    prompt: str
    add_special_tokens: bool | None = None
    """Null is true."""
    return_token_strs: bool | None = None
    model: str | None = None


class ChatBody(ChatFields, kw_only=True):
    """A conversation to render and tokenize."""

    return_token_strs: bool | None = None
    model: str | None = None


CHAT_FIELDS: Mapping[str, tuple[JSON, ...]] = {
    "chat_template": (),
    "add_special_tokens": (False,),
    "mm_processor_kwargs": ({},),
    "documents": ([],),
}
"""What else a chat body may have, and what of it passes: the template writes its control tokens itself."""


class Tokens(msgspec.Struct):
    """The answer."""

    count: int
    max_model_len: int
    tokens: tuple[int, ...]
    token_strs: list[str] | UnsetType = UNSET


class TokenizeCodec(CommonErrors):
    """Decodes either kind of body."""

    def __init__(self) -> None:
        self._peeks = msgspec.json.Decoder(Peek)
        self._texts = BodyDecoder(TextBody)
        self._chats = BodyDecoder(ChatBody, CHAT_FIELDS)

    def decode(self, body: bytes, context: DecodeContext) -> Inquiry:
        """What to tokenize."""
        peek = decode_value(self._peeks, check_body(body))
        match [name for name in ("prompt", "messages", "content") if bytes(getattr(peek, name)) not in (b"", b"null")]:
            case ["prompt"]:
                return self._text(body, context.request_id)
            case ["messages"]:
                return self._chat(body, context.request_id)
            case ["content"]:
                raise Unsupported(
                    "content is a field of llama.cpp's tokenizer route; this one takes prompt (a text, to which"
                    " add_special_tokens adds by default) or messages",
                    param="content",
                )
            case []:
                raise DecodeError("prompt is missing: send prompt or messages", param="prompt")
            case several:
                raise DecodeError(f"{' and '.join(several)} cannot be told together: send one", param=several[1])

    def _text(self, body: bytes, id: str) -> Inquiry:
        wanted = self._texts.decode(body)
        prompt = TextPrompt(wanted.prompt, add_special_tokens=wanted.add_special_tokens is not False)
        return TokenizeInquiry(Request(id=id, prompt=prompt), bool(wanted.return_token_strs))

    def _chat(self, body: bytes, id: str) -> Inquiry:
        wanted = self._chats.decode(body)
        chat, choice = read_chat(wanted)
        return TokenizeInquiry(Request(id=id, prompt=chat, tool_choice=choice), bool(wanted.return_token_strs))


class TokenizeInquiry:
    """One prompt."""

    def __init__(self, request: Request, strings: bool) -> None:
        self._request = request
        self._strings = strings

    async def answer(self, services: Services) -> bytes:
        """`{"count": ..., "max_model_len": ..., "tokens": [...]}`."""
        ids = await self._ids(services)
        told = Tokens(len(ids), services.model.window, ids)
        if self._strings:
            tokenizer = needed_tokenizer(services)
            told.token_strs = [spelled(tokenizer, (token,)) for token in ids]
        return msgspec.json.encode(told)

    async def _ids(self, services: Services) -> tuple[int, ...]:
        match self._request.prompt:
            case TextPrompt("", add_special_tokens) if services.tokenizer is not None:
                # No prompt that could be run, and still a text whose tokens can be counted.
                return tuple(services.tokenizer.encode("", add_special_tokens=add_special_tokens, parse_special=True))
            case _:
                return (await services.engine.prepare(self._request)).ids

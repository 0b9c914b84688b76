"""`POST /detokenize`: the text of tokens, control tokens included."""

from __future__ import annotations

import msgspec

from tensorfold.contracts.dialect import DecodeContext, Inquiry
from tensorfold.contracts.engine import Services
from tensorfold.errors import InvalidRequest
from tensorfold.wire import BodyDecoder, Int64
from tensorfold.wire.envelope import CommonErrors
from tensorfold_dialect_vllm.spelling import needed_tokenizer, spelled

__all__ = ["DetokenizeBody", "DetokenizeCodec"]


class DetokenizeBody(msgspec.Struct):
    """Tokens to spell."""

    tokens: list[Int64]
    model: str | None = None


class Spelled(msgspec.Struct):
    """The answer."""

    prompt: str


class DetokenizeCodec(CommonErrors):
    """Decodes token ids."""

    def __init__(self) -> None:
        self._bodies = BodyDecoder(DetokenizeBody)

    def decode(self, body: bytes, context: DecodeContext) -> Inquiry:
        """What to spell."""
        return DetokenizeInquiry(self._bodies.decode(body).tokens)


class DetokenizeInquiry:
    """Some tokens."""

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = tokens

    async def answer(self, services: Services) -> bytes:
        """`{"prompt": ...}`."""
        tokenizer = needed_tokenizer(services)
        for index, token in enumerate(self._tokens):
            if not 0 <= token < tokenizer.size:
                raise InvalidRequest(
                    f"tokens[{index}] is {token}, and this model's ids go from 0 to {tokenizer.size - 1}",
                    param=f"tokens[{index}]",
                )
        return msgspec.json.encode(Spelled(spelled(tokenizer, self._tokens)))

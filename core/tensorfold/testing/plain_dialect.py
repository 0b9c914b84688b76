"""The smallest dialect: text in, text out. For contracts and tests that need one and are about something else."""

from __future__ import annotations

import msgspec

from tensorfold.contracts.dialect import DecodeContext, Dialect, Endpoint
from tensorfold.errors import RequestError
from tensorfold.ir import Answer, Event, Failed, Limits, Request, Sampling, TextDelta, TextPrompt
from tensorfold.wire import BodyDecoder

__all__ = ["PATH", "plain_dialect"]

PATH = "/plain"


class Body(msgspec.Struct):
    """What is asked."""

    prompt: str
    tokens: int = 16
    stream: bool = False


class _Codec:
    media_type = "application/json"
    stream_media_type = "text/plain"
    keep_alive = b""

    def __init__(self) -> None:
        self._bodies = BodyDecoder(Body)

    def decode(self, body: bytes, context: DecodeContext) -> _Exchange:
        wanted = self._bodies.decode(body)
        request = Request(
            id=context.request_id,
            prompt=TextPrompt(wanted.prompt),
            sampling=Sampling(temperature=0.0),
            limits=Limits(max_tokens=wanted.tokens),
        )
        return _Exchange((request,), wanted.stream)

    def encode_error(self, error: RequestError, request_id: str) -> bytes:
        return msgspec.json.encode({"error": error.message})


class _Exchange:
    def __init__(self, requests: tuple[Request, ...], stream: bool) -> None:
        self.requests = requests
        self.stream = stream

    def answer(self, answer: Answer) -> bytes:
        return msgspec.json.encode({"text": "".join(choice.text for choice in answer.choices)})

    def encoder(self) -> _Encoder:
        return _Encoder()


class _Encoder:
    def feed(self, event: Event) -> bytes:
        match event:
            case TextDelta(_, text):
                return text.encode()
            case Failed(message):
                return f"\nerror: {message}\n".encode()
            case _:
                return b""


def plain_dialect() -> Dialect:
    """One endpoint, `POST /plain`: `{"prompt", "tokens", "stream"}` is answered with `{"text"}`."""
    codec = _Codec()
    return Dialect(name="plain", errors=codec, endpoints=(Endpoint(PATH, codec),))

"""ACME's API: `POST /acme/complete` continues a text; a stream is one JSON object a line."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tensorfold import hookimpl
from tensorfold.contracts.dialect import DecodeContext, Dialect, Endpoint
from tensorfold.contracts.settings import PluginSettings
from tensorfold.errors import RequestError
from tensorfold.ir import Answer, Event, Failed, Finished, Limits, Request, Sampling, TextDelta, TextPrompt
from tensorfold.wire import BodyDecoder


class Body(msgspec.Struct):
    """What is asked."""

    prompt: str
    tokens: int = 16
    stream: bool = False


class AcmeErrors:
    """`{"acme_error": "..."}`."""

    media_type = "application/json"

    def encode_error(self, error: RequestError, request_id: str) -> bytes:
        """The message alone."""
        return msgspec.json.encode({"acme_error": error.message})


class AcmeCodec(AcmeErrors):
    """Text in, text out."""

    stream_media_type = "application/x-ndjson"
    keep_alive = b"\n"

    def __init__(self) -> None:
        self._bodies = BodyDecoder(Body)

    def decode(self, body: bytes, context: DecodeContext) -> AcmeExchange:
        """A greedy continuation."""
        wanted = self._bodies.decode(body)
        request = Request(
            id=context.request_id,
            prompt=TextPrompt(wanted.prompt),
            sampling=Sampling(temperature=0.0),
            limits=Limits(max_tokens=wanted.tokens),
        )
        return AcmeExchange((request,), wanted.stream)


class AcmeExchange:
    """One request, and its answers."""

    def __init__(self, requests: tuple[Request, ...], stream: bool) -> None:
        self.requests = requests
        self.stream = stream

    def answer(self, answer: Answer) -> bytes:
        """The whole text and how many tokens it took."""
        text = "".join(choice.text for choice in answer.choices)
        return msgspec.json.encode({"text": text, "tokens": answer.usage.completion_tokens})

    def encoder(self) -> AcmeEncoder:
        """Keeps nothing between events."""
        return AcmeEncoder()


class AcmeEncoder:
    """One line an event."""

    def feed(self, event: Event) -> bytes:
        """Text, the end, or what went wrong."""
        match event:
            case TextDelta(_, text):
                return msgspec.json.encode({"text": text}) + b"\n"
            case Finished(usage):
                return msgspec.json.encode({"done": True, "tokens": usage.completion_tokens}) + b"\n"
            case Failed(message):
                return msgspec.json.encode({"acme_error": message}) + b"\n"
            case _:
                return b""


@hookimpl
def tensorfold_dialects(settings: PluginSettings) -> Iterable[Dialect]:
    """One dialect with one endpoint."""
    yield Dialect(name="acme", errors=AcmeErrors(), endpoints=(Endpoint("/acme/complete", AcmeCodec()),))

"""Faults in a dialect's own code: they cost the request that met them, and its lane is free again."""

from __future__ import annotations

import io
from typing import Any

import httpx
import pytest

from tensorfold.contracts.dialect import DecodeContext, Dialect, Endpoint
from tensorfold.errors import RequestError
from tensorfold.ir import Event, Failed, TextDelta
from tensorfold.testing.plain_dialect import PATH, plain_dialect
from tensorfold.testing.scripted import Script
from tensorfold_dialect_openai import openai_dialect

from .rig import ASKS, REPLY, Rig, rig, script, text_of

PROMPT = "tell me"


class Faulty:
    """The plain codec, with a fault in one place."""

    stream_media_type = "text/plain"
    keep_alive = b""
    media_type = "application/json"

    def __init__(self, place: str) -> None:
        (endpoint,) = plain_dialect().endpoints
        self._sound = endpoint.codec
        self._place = place

    def decode(self, body: bytes, context: DecodeContext) -> Any:
        if self._place == "decode":
            raise KeyError("/home/me/field")
        return FaultyExchange(self._sound.decode(body, context), self._place)

    def encode_error(self, error: RequestError, request_id: str) -> bytes:
        if self._place == "encode_error":
            raise KeyError("/home/me/field")
        return self._sound.encode_error(error, request_id)


class FaultyExchange:
    def __init__(self, sound: Any, place: str) -> None:
        self.requests = sound.requests
        self.stream = sound.stream
        self._sound = sound
        self._place = place

    def answer(self, answer: Any) -> bytes:
        if self._place == "answer":
            raise KeyError("/home/me/field")
        return self._sound.answer(answer)  # type: ignore[no-any-return]

    def encoder(self) -> Any:
        if self._place == "encoder":
            raise KeyError("/home/me/field")
        return FaultyEncoder(self._sound.encoder(), self._place)


class FaultyEncoder:
    def __init__(self, sound: Any, place: str) -> None:
        self._sound = sound
        self._place = place
        self._fed = 0

    def feed(self, event: Event) -> bytes:
        if isinstance(event, TextDelta):
            self._fed += 1
        if self._place == "feed" and self._fed and not isinstance(event, Failed):
            raise KeyError("/home/me/field")
        if self._place == "feed and failure" and self._fed:
            raise KeyError("/home/me/field")
        return self._sound.feed(event)  # type: ignore[no-any-return]


def faulty(place: str) -> list[Dialect]:
    """The faulty dialect beside a sound one."""
    codec = Faulty(place)
    return [Dialect(name="plain", errors=codec, endpoints=(Endpoint(PATH, codec),)), openai_dialect()]


def sound_reply(server: Rig) -> bool:
    """Whether the other dialect is served, and nothing is left of the faulty request."""
    server.idle()
    return text_of(ASKS["completions"].post(server.client, "next", stream=True)) == REPLY.decode()


SCRIPTS = [Script(tuple(PROMPT.encode()), tuple(REPLY)), script(ASKS["completions"], "next")]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("place", ["decode", "answer", "encoder"])
def test_a_codec_that_fails_before_anything_was_sent_is_a_500_in_its_own_envelope(
    place: str, stream: bool, log: io.StringIO
) -> None:
    """The words of the fault are in the log, and never in the answer."""
    with rig(SCRIPTS, dialects=faulty(place)) as server:
        answer = server.client.post(PATH, json={"prompt": PROMPT, "stream": stream})
        if (place, stream) in {("answer", True), ("encoder", False)}:
            assert answer.status_code == 200
        else:
            assert answer.status_code == 500
            assert answer.json().keys() == {"error"}
            assert "/home/me" not in answer.text
            assert "/home/me" in log.getvalue()
        assert sound_reply(server)


def test_an_encoder_that_fails_half_way_ends_its_stream_with_an_error(log: io.StringIO) -> None:
    """The dialect's own error, as far as it can say it; the request ends in the engine too."""
    with rig(SCRIPTS, dialects=faulty("feed")) as server:
        answer = server.client.post(PATH, json={"prompt": PROMPT, "stream": True})
        assert answer.status_code == 200
        assert "error: the server failed to answer this request" in answer.text
        assert "/home/me" not in answer.text
        assert "a dialect failed to encode a stream" in log.getvalue()
        assert sound_reply(server)


def test_an_encoder_that_cannot_even_tell_of_its_failure_has_its_connection_cut() -> None:
    """No client takes what has come for a whole reply."""
    with rig(SCRIPTS, dialects=faulty("feed and failure")) as server:
        with pytest.raises(httpx.RemoteProtocolError):
            server.client.post(PATH, json={"prompt": PROMPT, "stream": True})
        assert sound_reply(server)


def test_errors_that_a_dialect_cannot_write_are_written_by_the_core() -> None:
    """With their own status."""
    with rig(SCRIPTS, dialects=faulty("encode_error")) as server:
        for body, status in ((b"{", 400), (b'{"prompt": "x" }' + b" " * 40_000_000, 413)):
            answer = server.client.post(PATH, content=body, headers={"content-type": "application/json"})
            assert answer.status_code == status
            assert answer.json()["error"]["message"]
        assert sound_reply(server)

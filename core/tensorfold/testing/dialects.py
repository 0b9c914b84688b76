"""What every dialect has to pass: subclass `DialectContract` in a test module and give it the dialect.

    from tensorfold.testing.dialects import DialectContract

    class TestAcme(DialectContract):
        dialect = next(iter(tensorfold_dialects(PluginSettings({}))))
        bodies = {"/acme/complete": b'{"prompt": "hi"}'}
        stream_bodies = {"/acme/complete": b'{"prompt": "hi", "stream": true}'}

Each endpoint is asked with its body, through its codec alone and over the real HTTP front with a scripted engine.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

import msgspec
import pytest

from tensorfold.contracts.auth import AuthSource, Credentials, Principal
from tensorfold.contracts.dialect import (
    Codec,
    Dialect,
    Endpoint,
    Exchange,
    InquiryCodec,
    InquiryEndpoint,
)
from tensorfold.errors import (
    GenerationFailed,
    NotFound,
    Rejected,
    RequestError,
)
from tensorfold.http.app import Application, create_app
from tensorfold.http.settings import HttpSettings
from tensorfold.ir import (
    Event,
    Failed,
    Finished,
    Progress,
    Queued,
    Request,
    Started,
    Stopped,
    TextDelta,
    ThinkingDelta,
    Timings,
    ToolCallDelta,
    Usage,
    fold,
)
from tensorfold.testing.asgi import Answered, ask
from tensorfold.testing.dialect_kit import CONTEXT, ERRORS, FOREIGN_BODIES, MODEL, refusal, reply_events
from tensorfold.testing.scoring import ScoringEngine
from tensorfold.testing.scripted_engine import ScriptedEngine, ScriptItem
from tensorfold.testing.toy_tokenizer import ToyTokenizer

__all__ = ["CONTEXT", "MODEL", "DialectContract", "refusal", "reply_events"]


class DialectContract:
    """Subclass it as `TestSomething` and set the dialect and its bodies."""

    dialect: ClassVar[Dialect]
    bodies: ClassVar[Mapping[str, bytes]]
    """For the path of each endpoint a small valid body that asks for a whole answer."""
    stream_bodies: ClassVar[Mapping[str, bytes]] = {}
    """The same for a stream; an endpoint that never streams has none."""
    inquiry_bodies: ClassVar[Mapping[str, bytes]] = {}
    """For the path of each inquiry a small valid body."""

    # ---- decoding ----

    def test_every_endpoint_has_a_body(self) -> None:
        """Each is tried with a body of its own.

        Fix: name every endpoint's path in `bodies`, every inquiry's in `inquiry_bodies`, and those that stream in
        `stream_bodies`.
        """
        assert set(self.bodies) == {endpoint.path for endpoint in self.dialect.endpoints}
        assert set(self.stream_bodies) <= set(self.bodies)
        assert set(self.inquiry_bodies) == {inquiry.path for inquiry in self.dialect.inquiries}

    def test_bodies_are_read_as_what_they_ask_for(self) -> None:
        """A body that asks for a stream gives an exchange whose `stream` is true, and no other does.

        Fix: take `Exchange.stream` from the body.
        """
        for endpoint, body in self._bodies():
            assert not self._decode(endpoint, body).stream, endpoint.path
        for endpoint, body in self._stream_bodies():
            assert self._decode(endpoint, body).stream, endpoint.path

    @pytest.mark.parametrize("name", FOREIGN_BODIES)
    def test_a_foreign_body_is_refused_with_a_4xx(self, name: str) -> None:
        """No JSON, other JSON, half characters, 100,000 brackets: refused in words, without Python's own.

        Fix: decode with `tensorfold.wire.BodyDecoder`, which bounds and checks bodies, and let every required field be
        required.
        """
        for codec in self._codecs():
            refusal(codec, FOREIGN_BODIES[name])

    def test_decoding_is_pure(self) -> None:
        """The same body gives the same requests and the same answer.

        Fix: take ids and times from the `DecodeContext`, and keep nothing in the codec.
        """
        for endpoint, body in (*self._bodies(), *self._stream_bodies()):
            once, again = self._decode(endpoint, body), self._decode(endpoint, body)
            assert once.requests == again.requests
            answer = fold(reply_events(["quokka"]))
            assert once.answer(answer) == again.answer(answer)

    def test_requests_have_distinct_ids_from_the_servers_own(self) -> None:
        """Logs and metrics follow a request by it.

        Fix: let each `Request.id` begin with `context.request_id`, and number them where there are several.
        """
        for endpoint, body in self._bodies():
            ids = [request.id for request in self._decode(endpoint, body).requests]
            assert ids and len(set(ids)) == len(ids)
            assert all(id.startswith(CONTEXT.request_id) for id in ids)

    def test_requests_can_travel(self) -> None:
        """A request survives the way through JSON, for engines on other machines.

        Fix: build requests of the types of `tensorfold.ir` alone.
        """
        for endpoint, body in self._bodies():
            for request in self._decode(endpoint, body).requests:
                assert msgspec.json.decode(msgspec.json.encode(request), type=Request) == request

    # ---- answering ----

    def test_a_stream_and_an_answer_carry_the_same_text(self) -> None:
        """Both tell of the same events.

        Fix: encode `TextDelta` in `feed`, and `choice.text` in `answer`.
        """
        for endpoint, body in self._stream_bodies():
            exchange = self._decode(endpoint, body)
            encoder = exchange.encoder()
            events = list(reply_events(["quokka"], exchange.requests[0].choices))
            assert b"quokka" in b"".join(encoder.feed(event) for event in events), endpoint.path
            assert b"quokka" in exchange.answer(fold(events)), endpoint.path

    def test_text_of_any_kind_is_encoded(self) -> None:
        """Quotes, control characters, line separators, text that looks like the stream's own frames.

        Fix: write JSON with `msgspec.json.encode`, and never text into a frame as it is.
        """
        texts = ['"', "\\", "\n\n", "\x00", "é漢👋🏽", "\u2028", "data: [DONE]\n\n"]
        for endpoint, body in self._stream_bodies():
            exchange = self._decode(endpoint, body)
            exchange.answer(fold(reply_events(texts))).decode()
            encoder = exchange.encoder()
            b"".join(encoder.feed(event) for event in reply_events(texts)).decode()

    def test_two_streams_share_no_state(self) -> None:
        """Encoders of one exchange do not know of each other.

        Fix: make a new encoder in `Exchange.encoder`, and keep its state in it.
        """
        for endpoint, body in self._stream_bodies():
            exchange = self._decode(endpoint, body)
            alone = exchange.encoder()
            expected = b"".join(alone.feed(event) for event in reply_events(["a", "b"]))
            one, other = exchange.encoder(), exchange.encoder()
            pairs = [(one.feed(event), other.feed(event)) for event in reply_events(["a", "b"])]
            assert b"".join(first for first, _ in pairs) == expected
            assert b"".join(second for _, second in pairs) == expected

    def test_every_kind_of_event_is_encoded(self) -> None:
        """What the API has no word for gives no bytes, and no error.

        Fix: end `feed` with `case _: return b""`.
        """
        events: list[Event] = [
            Queued(3),
            Started(0),
            Progress(1, 3, 0, 0.1),
            ThinkingDelta(0, "hm"),
            TextDelta(0, ""),
            TextDelta(0, "yes"),
            ToolCallDelta(0, 0, "call_1", "f", ""),
            ToolCallDelta(0, 0, None, None, "{}"),
            Stopped(0, "tool_calls"),
            Finished(Usage(3, 4), Timings(), ("00",)),
        ]
        for endpoint, body in self._stream_bodies():
            exchange = self._decode(endpoint, body)
            encoder = exchange.encoder()
            assert b"".join(encoder.feed(event) for event in events)
            assert exchange.answer(fold(events))

    @pytest.mark.parametrize("reason", ["end", "stop", "length", "window", "tool_calls", "repetition", "abort"])
    def test_every_stop_reason_is_encoded(self, reason: str) -> None:
        """Each becomes one of the API's own words.

        Fix: map every `StopReason`; most APIs know `stop` and `length`.
        """
        stopped = msgspec.convert({"type": "stopped", "choice": 0, "reason": reason}, Stopped)
        events: list[Event] = [Queued(3), TextDelta(0, "x"), stopped, Finished(Usage(3, 1), Timings(), ("00",))]
        for endpoint, body in self._stream_bodies():
            exchange = self._decode(endpoint, body)
            encoder = exchange.encoder()
            assert b"".join(encoder.feed(event) for event in events)
            assert exchange.answer(fold(events))

    def test_a_failure_in_a_stream_is_told(self) -> None:
        """The status line is long gone: the stream itself says what went wrong.

        Fix: encode `Failed` in `feed` with its message.
        """
        for endpoint, body in self._stream_bodies():
            encoder = self._decode(endpoint, body).encoder()
            encoder.feed(Queued(3))
            encoder.feed(TextDelta(0, "x"))
            assert b"wombat" in encoder.feed(Failed("a wombat in the works"))

    # ---- errors ----

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{type(error).__name__} {error.status}")
    def test_an_error_has_a_body_with_its_message(self, error: RequestError) -> None:
        """Every error of the tree has the API's envelope, with quotes escaped.

        Fix: encode `error.message` in `encode_error`, with a JSON encoder.
        """
        for encoder in (self.dialect.errors, *self._codecs()):
            body = encoder.encode_error(error, "req_1").decode()
            if encoder.media_type.partition(";")[0].endswith("json"):
                assert error.message in json.dumps(json.loads(body), ensure_ascii=False).replace('\\"', '"')
            else:
                assert error.message in body

    # ---- over HTTP ----

    def test_the_model_is_described_without_a_clash(self) -> None:
        """Keys of `describe_model` are new ones.

        Fix: leave out what the core says of a model already.
        """
        app = create_app(engine=ScriptedEngine(MODEL, lambda request: ()), model=MODEL, dialects=[self.dialect])
        (entry, _) = json.loads(ask(app, "GET", "/v1/models").body)["data"]
        assert entry["id"] == MODEL.id
        assert entry.items() >= self.dialect.describe_model(MODEL).items()

    def test_every_endpoint_answers(self) -> None:
        """With a 200, its media type and the reply's text.

        Fix: look at the claims above first.
        """
        for endpoint, body in self._bodies():
            answered = self._ask(endpoint, body)
            assert answered.status == 200, answered.body
            assert answered.headers["content-type"].startswith(endpoint.codec.media_type)
            assert b"quokka" in answered.body
            assert answered.headers["x-request-id"]

    def test_every_endpoint_streams(self) -> None:
        """With a 200, its stream's media type and the reply's text.

        Fix: look at the claims above first.
        """
        for endpoint, body in self._stream_bodies():
            answered = self._ask(endpoint, body)
            assert answered.status == 200
            assert answered.headers["content-type"].startswith(endpoint.codec.stream_media_type)
            assert b"quokka" in answered.body

    def test_a_refusal_has_its_own_status_also_when_a_stream_was_asked_for(self) -> None:
        """A full queue is a 429 with `retry-after` before the stream begins.

        Fix: let `encode_error` take any `RequestError`.
        """
        for endpoint, body in (*self._bodies(), *self._stream_bodies()):
            answered = self._ask(endpoint, body, Rejected("the queue is full", status=429))
            assert answered.status == 429
            assert answered.headers["retry-after"] == "1"
            assert b"the queue is full" in answered.body

    def test_a_failure_before_a_whole_answer_has_its_own_status(self) -> None:
        """An answer that is not streamed still can be a 500.

        Fix: let `encode_error` take any `RequestError`.
        """
        for endpoint, body in self._bodies():
            answered = self._ask(endpoint, body, TextDelta(0, "x"), GenerationFailed("a wombat in the works"))
            assert answered.status == 500
            assert b"wombat" in answered.body

    def test_a_malformed_body_is_answered_in_the_dialects_envelope(self) -> None:
        """The bytes are those of `encode_error`.

        Fix: raise `DecodeError` from `decode`; `tensorfold.wire.BodyDecoder` does.
        """
        for endpoint in self._everywhere():
            answered = self._ask(endpoint, b'{"model":')
            assert answered.status == 400
            error = refusal(endpoint.codec, b'{"model":')
            assert answered.body == endpoint.codec.encode_error(error, answered.headers["x-request-id"])

    def test_what_comes_before_a_codec_is_refused_in_the_dialects_envelope(self) -> None:
        """A wrong method, path, length, type or key is answered with `Dialect.errors`.

        Fix: let `errors.encode_error` give an object with the same keys for every error.
        """
        for path in (endpoint.path for endpoint in self._everywhere()):
            for refused, status in self._refused_early(path):
                assert refused.status == status, (path, refused.body)
                error = json.loads(refused.body)
                told = json.loads(self.dialect.errors.encode_error(NotFound("x"), refused.headers["x-request-id"]))
                assert error.keys() == told.keys(), (path, status)
                assert status != 401 or refused.headers["www-authenticate"] == "Bearer"
                assert status != 405 or refused.headers["allow"]

    def test_every_inquiry_answers(self) -> None:
        """With a 200 and its media type.

        Fix: raise nothing but `RequestError` from `Inquiry.answer`.
        """
        for inquiry in self.dialect.inquiries:
            answered = self._ask(inquiry, self.inquiry_bodies[inquiry.path])
            assert answered.status == 200, answered.body
            assert answered.headers["content-type"].startswith(inquiry.codec.media_type)
            assert answered.body

    # ---- helpers ----

    def _bodies(self) -> Iterator[tuple[Endpoint, bytes]]:
        return ((endpoint, self.bodies[endpoint.path]) for endpoint in self.dialect.endpoints)

    def _stream_bodies(self) -> Iterator[tuple[Endpoint, bytes]]:
        for endpoint in self.dialect.endpoints:
            if endpoint.path in self.stream_bodies:
                yield endpoint, self.stream_bodies[endpoint.path]

    def _decode(self, endpoint: Endpoint, body: bytes) -> Exchange:
        return endpoint.codec.decode(body, CONTEXT)

    def _everywhere(self) -> Iterator[Endpoint | InquiryEndpoint]:
        yield from self.dialect.endpoints
        yield from self.dialect.inquiries

    def _codecs(self) -> Iterator[Codec | InquiryCodec]:
        return (endpoint.codec for endpoint in self._everywhere())

    def _refused_early(self, path: str) -> Iterator[tuple[Answered, int]]:
        with self._app(settings=HttpSettings(max_body=10)) as app:
            yield ask(app, "PUT", path), 405
            yield ask(app, "POST", f"{path}/no/such/path", body=b"{}"), 404
            yield ask(app, "POST", path, body=b'{"long": "too long"}'), 413
            yield ask(app, "POST", path, body=b"{}", headers={"content-type": "text/plain"}), 415
        with self._app(auth=[_Closed()]) as app:
            yield ask(app, "POST", path, body=b"{}"), 401

    @contextmanager
    def _app(
        self, *items: ScriptItem, auth: Sequence[AuthSource] = (), settings: HttpSettings | None = None
    ) -> Generator[Application]:
        def script(request: Request) -> Iterable[ScriptItem]:
            return items or reply_events(["quokka"], request.choices)

        app = create_app(
            engine=ScoringEngine(MODEL, None, lambda prompt: dict.fromkeys(range(256), 1 / 256), script),
            model=MODEL,
            dialects=[self.dialect],
            auth=auth,
            settings=settings,
            tokenizer=ToyTokenizer(),
        )
        try:
            yield app
        finally:
            app.close()

    def _ask(self, endpoint: Endpoint | InquiryEndpoint, body: bytes, *items: ScriptItem) -> Answered:
        with self._app(*items) as app:
            return ask(app, "POST", endpoint.path, body=body)


class _Closed:
    """An auth source that knows nobody."""

    name = "closed"
    description = "nobody"
    guards = True

    def identify(self, credentials: Credentials) -> Principal | None:
        return None

    def refresh(self) -> None: ...

    def reload(self) -> None: ...

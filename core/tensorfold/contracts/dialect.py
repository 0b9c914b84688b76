"""What an API dialect declares: endpoints with pure codecs, plain resources, and its error envelope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

from tensorfold.contracts.engine import ModelInfo, Services
from tensorfold.errors import RequestError
from tensorfold.ir import JSON, Answer, Event, Request

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

__all__ = [
    "Body",
    "Codec",
    "DecodeContext",
    "Dialect",
    "Endpoint",
    "ErrorEncoder",
    "Exchange",
    "Inquiry",
    "InquiryCodec",
    "InquiryEndpoint",
    "NamesFields",
    "Resource",
    "Scope",
    "StreamEncoder",
]

Scope: TypeAlias = Literal["open", "api", "admin"]
"""Who may call: anybody; any key when keys are configured; an admin key."""


@dataclass(frozen=True, slots=True)
class DecodeContext:
    """What a codec may know besides the body, so that it needs no clock and no engine."""

    request_id: str
    """The id that the server stamped; answers derive theirs from it."""
    created: int
    """When the request came, in seconds since the epoch."""
    model: ModelInfo
    """What is served; answers report `model.id`."""


Body: TypeAlias = type | tuple[type, ...]
"""A wire type, or several whose fields a body has together."""


class StreamEncoder(Protocol):
    """Encodes one stream. Stateful, made for one exchange, not shared."""

    def feed(self, event: Event) -> bytes:
        """The bytes that tell of this event; empty when the API has no word for it."""
        ...


class Exchange(Protocol):
    """One decoded request and the way to answer it. Pure."""

    @property
    def requests(self) -> tuple[Request, ...]:
        """Usually one. Several (a list of prompts) run side by side; the core numbers their choices through,
        request by request, and sums their usage, so that the codec sees the events of one."""
        ...

    @property
    def stream(self) -> bool:
        """Whether the client asked for a stream."""
        ...

    def answer(self, answer: Answer) -> bytes:
        """The whole answer."""
        ...

    def encoder(self) -> StreamEncoder:
        """A fresh encoder of a stream."""
        ...


@runtime_checkable
class NamesFields(Protocol):
    """An exchange or inquiry whose body has names of its own for what the core's errors speak of. Most need none."""

    @property
    def names(self) -> Mapping[str, str]:
        """The body's field by the core's name of it (`messages`, `prompt`, `response_format`, ...). An error that names
        a field of which nothing is said here goes out as it is."""
        ...


class ErrorEncoder(Protocol):
    """A dialect's error envelope."""

    media_type: str

    def encode_error(self, error: RequestError, request_id: str) -> bytes:
        """The body of an error answer."""
        ...


class Codec(ErrorEncoder, Protocol):
    """One wire format. Pure: no clock, no I/O, no engine."""

    media_type: str
    """Of whole answers and errors."""
    stream_media_type: str
    keep_alive: bytes
    """What may be sent at any time to keep a stream open (an SSE comment); empty: nothing."""

    def decode(self, body: bytes, context: DecodeContext) -> Exchange:
        """What the body asks for.

        Raises:
            DecodeError: the body has another shape; names the place.
            InvalidRequest, Unsupported: the shape is right and the request cannot be.
        """
        ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A generating endpoint: POST, served by the core over a codec."""

    path: str
    codec: Codec
    scope: Scope = "api"
    bodies: tuple[Body, ...] = ()
    """The wire types that the codec decodes to, for the API's description; several are alternatives."""
    about: str = ""
    """What it does, in a few words, for the same."""


class Inquiry(Protocol):
    """One decoded body that is answered without generating a reply."""

    async def answer(self, services: Services) -> bytes:
        """The answer's body. Cancelled when the client leaves.

        Raises:
            RequestError: it cannot be answered.
        """
        ...


class InquiryCodec(ErrorEncoder, Protocol):
    """The wire format of inquiries. Decoding is pure, as a `Codec`'s."""

    def decode(self, body: bytes, context: DecodeContext) -> Inquiry:
        """What the body asks for.

        Raises:
            DecodeError: the body has another shape; names the place.
            InvalidRequest, Unsupported: the shape is right and the request cannot be.
        """
        ...


@dataclass(frozen=True, slots=True)
class InquiryEndpoint:
    """An endpoint that asks and generates nothing (a count, token ids, probabilities): POST, served by the core."""

    path: str
    codec: InquiryCodec
    scope: Scope = "api"
    bodies: tuple[Body, ...] = ()
    about: str = ""
    """Both as an `Endpoint`'s."""


@dataclass(frozen=True, slots=True)
class Resource:
    """Any other path: a Falcon ASGI resource with `on_get`, `on_post`, ... responders."""

    path: str
    resource: object
    scope: Scope = "api"


def _no_resources(services: Services) -> Sequence[Resource]:
    return ()


def _no_collectors(services: Services) -> Sequence[Collector]:
    return ()


def _no_description(model: ModelInfo) -> Mapping[str, JSON]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One API."""

    name: str
    """Unique among dialects (`openai`)."""
    errors: ErrorEncoder
    """For errors on this dialect's paths that come before its codecs (401, 404, 405, 413)."""
    endpoints: tuple[Endpoint, ...] = ()
    inquiries: tuple[InquiryEndpoint, ...] = ()
    resources: Callable[[Services], Sequence[Resource]] = _no_resources
    """Asked once, when the application is built."""
    collectors: Callable[[Services], Sequence[Collector]] = _no_collectors
    """Prometheus collectors for `/metrics`, asked once too: readings under the names that the API's dashboards know.

    One that is an `Observer` as well is told of each request.
    """
    describe_model: Callable[[ModelInfo], Mapping[str, JSON]] = _no_description
    """Keys for each model's entry in `/v1/models`; a clash with another dialect's stops the start."""

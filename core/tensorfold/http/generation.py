"""The one resource behind every generating endpoint of every dialect."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import falcon.asgi

from tensorfold.contracts.dialect import DecodeContext, Endpoint, Exchange, NamesFields
from tensorfold.contracts.engine import Services
from tensorfold.errors import Rejected, RequestError, UnsupportedMedia
from tensorfold.http.audience import Audience
from tensorfold.http.flight import Flight
from tensorfold.http.front import FrontPool
from tensorfold.http.guard import read_credentials
from tensorfold.http.outlet import outlet_of
from tensorfold.http.request_log import Asked, RequestLog
from tensorfold.http.settings import HttpSettings
from tensorfold.http.visit import Visit

__all__ = ["Generation", "Serving", "check_media_type", "named_as_in"]

T = TypeVar("T")


class Serving:
    """What every endpoint shares: engine, audience, threads, limits, and whether the server still takes requests."""

    def __init__(
        self, services: Services, audience: Audience, settings: HttpSettings, log: RequestLog | None = None
    ) -> None:
        self.services = services
        self.log = log
        self.audience = audience
        self.settings = settings
        self.front = FrontPool(settings.front_threads, settings.front_queue)
        self.draining = False

    def check_open(self) -> None:
        """
        Raises:
            Rejected: no new request is taken any more.
        """
        if self.draining:
            raise Rejected("the server is shutting down", code="shutting_down")

    async def decode(self, decode: Callable[[bytes, DecodeContext], T], body: bytes, visit: Visit) -> T:
        """The body as a codec reads it; a large one is read in another thread."""
        context = DecodeContext(request_id=visit.id, created=visit.created, model=self.services.model)
        if len(body) <= self.settings.front_bytes:
            return decode(body, context)
        return await self.front.run(lambda: decode(body, context))


class Generation:
    """Decodes over the endpoint's codec, submits, and answers whole or streamed."""

    def __init__(self, endpoint: Endpoint, serving: Serving) -> None:
        self._path = endpoint.path
        self._codec = endpoint.codec
        self._serving = serving

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """One exchange."""
        visit = Visit.of(req.scope)
        self._serving.check_open()
        check_media_type(req)
        body = await visit.connection.body()
        visit.errors = self._codec
        if self._serving.log is not None:
            visit.recording = self._serving.log.begin(_asked(req, visit, body, self._serving.services.model.id))
        exchange = await self._serving.decode(self._codec.decode, body, visit)
        with named_as_in(exchange):
            await self._run(exchange, visit, req, resp)

    async def _run(
        self, exchange: Exchange, visit: Visit, req: falcon.asgi.Request, resp: falcon.asgi.Response
    ) -> None:
        requests = [self._serving.audience.admit(visit.sent(request)) for request in exchange.requests]
        flight = visit.flight = Flight(
            self._serving.services.engine, self._serving.audience, self._path, visit.arrived, self._serving.settings
        )
        visit.connection.watch(flight.hang_up)
        await flight.submit(requests)
        if exchange.stream:
            resp.content_type = self._codec.stream_media_type
            resp.set_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
            resp.stream = flight.stream(exchange.encoder(), self._codec.keep_alive, outlet_of(req.scope))
        else:
            resp.content_type = self._codec.media_type
            resp.data = exchange.answer(await flight.answer())


@contextmanager
def named_as_in(decoded: object) -> Generator[None]:
    """Errors of what a body asks for name the fields as the body does."""
    try:
        yield
    except RequestError as error:
        if error.param is not None and isinstance(decoded, NamesFields):
            error.param = decoded.names.get(error.param, error.param)
        raise


def _asked(req: falcon.asgi.Request, visit: Visit, body: bytes, model: str) -> Asked:
    return Asked(
        id=visit.id,
        model=model,
        created=visit.created,
        label=visit.label,
        method=req.method,
        path=req.path,
        headers={name.lower(): value for name, value in req.headers.items()},
        keys=read_credentials(req.scope["headers"]).offered,
        body=body,
    )


def check_media_type(req: falcon.asgi.Request) -> None:
    """JSON, plain and in UTF-8. A form's or text's type is what a foreign web page may send without being asked.

    Raises:
        UnsupportedMedia: another type, charset or encoding.
    """
    encoding = req.get_header("Content-Encoding", default="identity").strip().lower()
    if encoding not in ("identity", ""):
        raise UnsupportedMedia(f"a body in Content-Encoding {encoding} is not read: send it as it is")
    if not req.content_type:
        if req.get_header("Origin") is not None:
            raise UnsupportedMedia("a web page has to say what it sends: Content-Type: application/json")
        return
    media, _, parameters = req.content_type.lower().partition(";")
    media = media.strip()
    if media != "application/json" and not (media.startswith("application/") and media.endswith("+json")):
        raise UnsupportedMedia(f"a body of type {media} is not read: send JSON, with Content-Type: application/json")
    charset = parameters.partition("charset=")[2].partition(";")[0].strip(' "')
    if charset not in ("", "utf-8", "utf8", "us-ascii"):
        raise UnsupportedMedia(f"a body in {charset} is not read: send UTF-8")

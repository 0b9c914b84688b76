"""Errors as answers: the envelope of the codec that read the body, or of the nearest dialect, and the headers that SDKs look at."""

from __future__ import annotations

import math

import falcon
import falcon.asgi
import msgspec
import structlog

from tensorfold.errors import (
    DecodeError,
    GenerationFailed,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    RequestError,
    Unauthorized,
    UnsupportedMedia,
)
from tensorfold.http.connection import ClientGone
from tensorfold.http.internal import internal_error
from tensorfold.http.routes import Routes
from tensorfold.http.run import CLIENT_LEFT
from tensorfold.http.visit import Visit

__all__ = ["Envelopes", "PlainErrors"]


class PlainErrors:
    """The core's own envelope, for a server without dialects. Its shape is the one most clients read."""

    media_type = "application/json"

    def encode_error(self, error: RequestError, request_id: str) -> bytes:
        """`{"error": {...}}`."""
        body = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
        return msgspec.json.encode({"error": body})


class Envelopes:
    """Falcon error handlers."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    def install(self, app: falcon.asgi.App[falcon.asgi.Request, falcon.asgi.Response]) -> None:
        """Answer every exception of the application."""
        app.add_error_handler(Exception, self._on_fault)
        app.add_error_handler(falcon.HTTPError, self._on_falcon)
        app.add_error_handler(RequestError, self._on_refusal)
        app.add_error_handler(ClientGone, self._on_gone)

    async def _on_refusal(
        self, req: falcon.asgi.Request, resp: falcon.asgi.Response, error: RequestError, params: object
    ) -> None:
        self.answer(req, resp, error)

    async def _on_falcon(
        self, req: falcon.asgi.Request, resp: falcon.asgi.Response, error: falcon.HTTPError, params: object
    ) -> None:
        if isinstance(error, falcon.HTTPMethodNotAllowed):
            resp.set_headers(error.headers or {})  # Allow
        self.answer(req, resp, _translated(error, req))

    async def _on_fault(
        self, req: falcon.asgi.Request, resp: falcon.asgi.Response, error: Exception, params: object
    ) -> None:
        structlog.get_logger().exception("a request hit a fault", exc_info=error)
        self.answer(req, resp, internal_error())

    async def _on_gone(
        self, req: falcon.asgi.Request, resp: falcon.asgi.Response, error: ClientGone, params: object
    ) -> None:
        resp.status = CLIENT_LEFT  # nobody reads it; logs and metrics do

    def answer(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, error: RequestError) -> None:
        """Make the response that of an error."""
        visit = Visit.of(req.scope)
        visit.code = error.code or error.type
        encoder = visit.errors or self._routes.nearest(req.path)
        try:
            body = encoder.encode_error(error, visit.name)
        except Exception:  # noqa: BLE001 (a dialect may raise anything, and its caller still gets an answer)
            structlog.get_logger().exception("a dialect failed to write an error", encoder=type(encoder).__name__)
            encoder = PlainErrors()
            body = encoder.encode_error(error, visit.name)
        resp.status = error.status
        resp.content_type = encoder.media_type
        resp.data = body
        if isinstance(error, Unauthorized):
            resp.set_header("WWW-Authenticate", "Bearer")
        if error.retry_after is not None:
            resp.set_header("Retry-After", str(math.ceil(min(error.retry_after, 60.0))))
            resp.set_header("x-should-retry", "true")
        elif isinstance(error, GenerationFailed) and error.lasting:
            # Else SDKs would have the same long reply computed three times.
            resp.set_header("x-should-retry", "false")


def _translated(error: falcon.HTTPError, req: falcon.asgi.Request) -> RequestError:
    """Falcon's own refusals in our words."""
    match error.status_code:
        case 404:
            return NotFound(f"there is nothing at {req.path}", code="not_found")
        case 405:
            return MethodNotAllowed(f"{req.path} does not take {req.method}", code="method_not_allowed")
        case 413:
            return PayloadTooLarge("the body is longer than this server reads")
        case 415:
            return UnsupportedMedia("the body has a media type that this endpoint does not read")
        case status:
            refusal = DecodeError(error.description or error.title or "the request cannot be read")
            refusal.status = status
            return refusal

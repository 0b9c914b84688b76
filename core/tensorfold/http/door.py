"""The outermost layer: names each request, bounds how many there are, closes what was left open, logs one line."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from typing import Any

import falcon.asgi
import structlog

from tensorfold.contracts.observe import Outcome
from tensorfold.errors import Forbidden, Rejected, RequestError
from tensorfold.http.connection import Connection, Message, Receive, Send
from tensorfold.http.envelopes import Envelopes
from tensorfold.http.origins import Cors, is_own_name
from tensorfold.http.run import CLIENT_LEFT
from tensorfold.http.settings import HttpSettings
from tensorfold.http.tracing import read_trace
from tensorfold.http.visit import SCOPE_KEY, Visit, request_names
from tensorfold.observe.metrics import Metrics
from tensorfold.observe.recorded import RecordedAnswer

__all__ = ["Door"]

QUIET = frozenset({"/health", "/metrics", "/v1/metrics"})
"""Endpoints that are polled; their lines are for debugging."""


class Door:
    """An ASGI application around Falcon's."""

    def __init__(
        self,
        app: falcon.asgi.App[falcon.asgi.Request, falcon.asgi.Response],
        envelopes: Envelopes,
        metrics: Metrics,
        settings: HttpSettings,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._settings = settings
        self._cors = Cors(settings.cors_origins) if settings.cors_origins else None
        self.active = 0
        """Requests in progress."""
        app.add_middleware(_Bounds(self, settings))

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request; lifespan events are Falcon's, WebSockets are not served."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        id, name = request_names(_ascii(headers.get(b"x-request-id")))
        connection = Connection(receive, _ascii(headers.get(b"content-length")), self._settings)
        visit = scope[SCOPE_KEY] = Visit(id=id, name=name, connection=connection, trace=read_trace(scope["headers"]))
        origin = None if self._cors is None else self._cors.allowed(scope["headers"])
        if origin is not None and scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            await _no_content(send, Cors.preflight(origin, scope["headers"]))
            return
        self.active += 1
        with structlog.contextvars.bound_contextvars(request_id=name):
            try:
                await self._app(scope, connection.receive, _Stamped(send, visit, origin))
            except Exception:
                structlog.get_logger().exception("an answer broke off")
                raise
            finally:
                self.active -= 1
                connection.close()
                if visit.flight is not None:
                    await visit.flight.close()
                self._record(scope, visit)
                structlog.contextvars.unbind_contextvars("label")

    def _record(self, scope: dict[str, Any], visit: Visit) -> None:
        status = visit.status or CLIENT_LEFT
        log = structlog.get_logger()
        try:
            self._metrics.answered(visit.label, visit.endpoint, status)
        except Exception:
            log.exception("a metric failed")
        outcomes = visit.flight.outcomes if visit.flight is not None else ()
        if CLIENT_LEFT in (status, *(outcome.status for outcome in outcomes)):
            self._metrics.disconnected()
        usages = [outcome.usage for outcome in outcomes if outcome.usage is not None]
        facts: dict[str, object] = {
            "method": scope["method"],
            "endpoint": visit.endpoint or "none",
            "status": status,
            "seconds": round(time.monotonic() - visit.arrived, 4),
        }
        if visit.label:
            facts["label"] = visit.label
        if visit.code:
            facts["error"] = visit.code
        if outcomes:
            facts["id"] = visit.id
            facts["ended"] = ",".join(dict.fromkeys(outcome.reason for outcome in outcomes))
        if usages:
            facts["prompt_tokens"] = sum(usage.prompt_tokens for usage in usages)
            facts["completion_tokens"] = sum(usage.completion_tokens for usage in usages)
        if visit.recording is not None:
            visit.recording.write(_recorded(visit, status, outcomes))
        quiet = visit.endpoint in QUIET and status < 400
        (log.debug if quiet else log.info)("request", **facts)


def _recorded(visit: Visit, status: int, outcomes: Sequence[Outcome]) -> RecordedAnswer:
    """How a request ended, for its file; of several in one body the first."""
    first = outcomes[0] if outcomes else None
    left = any(outcome.status == CLIENT_LEFT for outcome in outcomes)
    return RecordedAnswer(
        status=CLIENT_LEFT if left else status,
        reason=visit.code or (first.reason if first else ""),
        seconds=round(time.monotonic() - visit.arrived, 4),
        usage=first.usage if first else None,
        timings=first.timings if first else None,
        token_sha=tuple(sha for outcome in outcomes for sha in outcome.token_sha),
    )


class _Stamped:
    """Writes the request's name into the response's headers, under each name that an SDK looks for, and what is granted."""

    def __init__(self, send: Send, visit: Visit, origin: bytes | None) -> None:
        """`origin`: of a page that may read the answer."""
        self._send = send
        self._visit = visit
        self._granted = [] if origin is None else Cors.granted(origin)

    def __call__(self, message: Message) -> Awaitable[None]:
        """PERF: no coroutine of its own, since every piece of every stream comes through here."""
        if message["type"] == "http.response.start":
            self._visit.status = message["status"]
            name = self._visit.name.encode()
            names = [(b"x-request-id", name), (b"request-id", name), (b"x-typesafe-request-id", name)]
            # A browser that guesses types may take a reply for a page.
            names.append((b"x-content-type-options", b"nosniff"))
            message["headers"] = [*message["headers"], *names, *self._granted]
        return self._send(message)


async def _no_content(send: Send, headers: Sequence[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


class HeadTooLarge(RequestError):
    """The request line and headers are longer than the bound."""

    status = 431


class _Bounds:
    """Falcon middleware: heads of so many bytes, and so many requests at once."""

    def __init__(self, door: Door, settings: HttpSettings) -> None:
        self._door = door
        self._settings = settings

    async def process_request(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """Before the route is looked for."""
        scope = req.scope
        size = len(scope["path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if size > self._settings.max_head:
            raise HeadTooLarge(f"request line and headers are longer than {self._settings.max_head:,} bytes")
        self._check_host(scope)

    def _check_host(self, scope: dict[str, Any]) -> None:
        allowed = self._settings.allowed_hosts
        host = next((value for name, value in scope["headers"] if name == b"host"), None)
        if allowed is None or host is None or is_own_name(host, allowed):
            return
        raise Forbidden(
            "this server is reached under a name that is not its own; name it with --allowed-host",
            code="host_not_allowed",
        )

    async def process_resource(
        self, req: falcon.asgi.Request, resp: falcon.asgi.Response, resource: object, params: object
    ) -> None:
        """After the guard: strangers do not learn how full the server is."""
        most = self._settings.max_requests
        if self._door.active > most and Visit.of(req.scope).endpoint != "/health":
            raise Rejected(f"the server is answering {most} requests already; try again shortly")


def _ascii(value: bytes | None) -> str | None:
    try:
        return value.decode("ascii") if value else None
    except UnicodeDecodeError:
        return None

"""The application: routes of the core and of all dialects behind one door, on Falcon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import falcon.asgi
import structlog

from tensorfold.contracts.auth import AuthSource
from tensorfold.contracts.chat import Tokenizer
from tensorfold.contracts.dialect import Dialect, Scope
from tensorfold.contracts.engine import Engine, ModelInfo
from tensorfold.contracts.observe import Observer
from tensorfold.contracts.policy import RequestFilter
from tensorfold.errors import PluginConflict
from tensorfold.http.answering import Answering
from tensorfold.http.audience import Audience
from tensorfold.http.door import Door
from tensorfold.http.envelopes import Envelopes, PlainErrors
from tensorfold.http.generation import Generation, Serving
from tensorfold.http.guard import Guard
from tensorfold.http.openapi import Operation, asked_of, asked_of_resource
from tensorfold.http.reference import Reference, ReferenceJson, ReferencePage
from tensorfold.http.request_log import RequestLog
from tensorfold.http.resources import Health, MetricsText, Model, ModelCatalog, Models
from tensorfold.http.routes import Route, Routes, default_errors
from tensorfold.http.settings import HttpSettings
from tensorfold.observe.metrics import Metrics

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from tensorfold.contracts.dialect import ErrorEncoder
    from tensorfold.http.connection import Receive, Send

__all__ = ["Application", "create_app"]


@dataclass(frozen=True, slots=True)
class AppServices:
    """Implements `contracts.engine.Services`."""

    engine: Engine
    model: ModelInfo
    tokenizer: Tokenizer | None = None


class Application:
    """An ASGI application, and what a server has to know of it."""

    def __init__(self, door: Door, serving: Serving, auth: Sequence[AuthSource]) -> None:
        self._door = door
        self._serving = serving
        self._auth = tuple(auth)
        self._stop: Callable[[], object] | None = None

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._door(scope, receive, send)

    @property
    def engine(self) -> Engine:
        """What runs the requests."""
        return self._serving.services.engine

    @property
    def guarded(self) -> bool:
        """Whether keys are asked for."""
        return any(source.guards for source in self._auth)

    @property
    def active(self) -> int:
        """Requests in progress."""
        return self._door.active

    def refresh_auth(self) -> None:
        """Let every auth source look whether what it reads has changed. Does I/O: not on the event loop."""
        for source in self._auth:
            _guarded(source, source.refresh)

    def reload_auth(self) -> None:
        """Let every auth source read everything again. Does I/O: not on the event loop."""
        for source in self._auth:
            _guarded(source, source.reload)

    def drain(self) -> None:
        """Refuse new requests that generate; those in progress go on."""
        self._serving.draining = True

    def when_stopped(self, stop: Callable[[], None]) -> None:
        """The server that runs the application says how it is stopped; on its event loop."""
        self._stop = partial(asyncio.get_running_loop().call_soon_threadsafe, stop)

    def stop(self) -> None:
        """End the server in order, from any thread; a second call ends it at once. Nothing happens when none runs."""
        if self._stop is not None:
            self._stop()

    def close(self) -> None:
        """End the application's threads. No request is in progress any more."""
        self._serving.front.close()
        if self._serving.log is not None:
            self._serving.log.close()


def _guarded(source: AuthSource, call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:  # noqa: BLE001 - a source that fails must not keep the others from being looked at
        structlog.get_logger().exception("an auth source failed", source=source.name)


def create_app(
    *,
    engine: Engine,
    model: ModelInfo,
    dialects: Sequence[Dialect],
    auth: Sequence[AuthSource] = (),
    filters: Sequence[RequestFilter] = (),
    observers: Sequence[Observer] = (),
    collectors: Sequence[Collector] = (),
    settings: HttpSettings | None = None,
    tokenizer: Tokenizer | None = None,
    request_log: RequestLog | None = None,
) -> Application:
    """The application that serves one model; `tokenizer` is the model's, for dialects that show tokens.

    `request_log` is closed with the application.

    Raises:
        PluginConflict: two dialects have one name, path or model key, or two filters one name.
    """
    settings = settings or HttpSettings()
    names = [dialect.name for dialect in dialects]
    if twice := {name for name in names if names.count(name) > 1}:
        raise PluginConflict(f"two dialects are called {', '.join(sorted(twice))}")
    services = AppServices(engine, model, tokenizer)
    theirs = [collector for dialect in dialects for collector in dialect.collectors(services)]
    metrics = Metrics(engine.status, [*collectors, *theirs])
    told = [each for each in (*collectors, *theirs) if isinstance(each, Observer)]
    serving = Serving(services, Audience(filters, (metrics, *observers, *told)), settings, request_log)
    errors = default_errors(dialects, settings.default_dialect, PlainErrors())

    mounts = [*_core_mounts(settings, errors), *_dialect_mounts(dialects, services, serving)]
    routes = Routes([mount.route for mount in mounts], errors)
    guard = Guard(auth, routes)
    own = _core_resources(services, dialects, guard, metrics, mounts)
    envelopes = Envelopes(routes)
    app = falcon.asgi.App(middleware=[guard])
    for mount in mounts:
        try:
            app.add_route(mount.route.path, mount.resource or own[mount.route.path])
        except ValueError as error:  # a template that cannot stand beside another's
            raise PluginConflict(f"{mount.route.owner} claims the path {mount.route.path}: {error}") from None
    app.add_sink(guard.sink, "/")
    envelopes.install(app)
    return Application(Door(app, envelopes, metrics, settings), serving, auth)


@dataclass(frozen=True, slots=True)
class _Mount:
    """A route and what answers it."""

    route: Route
    resource: object | None
    """None: the core's own."""
    operations: tuple[Operation, ...] = ()
    """What the API's description says of it."""


def _core_resources(
    services: AppServices, dialects: Sequence[Dialect], guard: Guard, metrics: Metrics, mounts: Sequence[_Mount]
) -> dict[str, object]:
    catalog = ModelCatalog(services, dialects)
    own: dict[str, object] = {
        "/health": Health(services, guard),
        "/v1/models": Models(catalog),
        "/v1/models/{id:path}": Model(catalog),
        "/metrics": MetricsText(metrics),
        "/v1/metrics": MetricsText(metrics),
    }
    operations = [operation for mount in mounts for operation in mount.operations]
    for mount in mounts:
        if (resource := own.get(mount.route.path)) is not None:
            operations += asked_of_resource(mount.route.path, resource, mount.route.scope, "core")
    reference = Reference(operations, version("tensorfold"), guarded=guard.closed)
    return {**own, "/openapi.json": ReferenceJson(reference), "/docs": ReferencePage(reference)}


def _core_mounts(settings: HttpSettings, errors: ErrorEncoder) -> list[_Mount]:
    metrics: Scope = "open" if settings.metrics_open else "api"
    scopes: dict[str, Scope] = {
        "/health": "open",
        "/v1/models": "api",
        "/v1/models/{id:path}": "api",
        "/metrics": metrics,
        "/v1/metrics": metrics,
        "/openapi.json": "api",
        "/docs": "api",
    }
    return [_Mount(Route(path, scope, errors, "the core"), None) for path, scope in scopes.items()]


def _dialect_mounts(dialects: Sequence[Dialect], services: AppServices, serving: Serving) -> list[_Mount]:
    mounts: list[_Mount] = []
    for dialect in dialects:
        owner = f"dialect {dialect.name}"
        for endpoint in dialect.endpoints:
            route = Route(endpoint.path, endpoint.scope, dialect.errors, owner)
            mounts.append(_Mount(route, Generation(endpoint, serving), (asked_of(endpoint, dialect.name),)))
        for inquiry in dialect.inquiries:
            route = Route(inquiry.path, inquiry.scope, dialect.errors, owner)
            mounts.append(_Mount(route, Answering(inquiry, serving), (asked_of(inquiry, dialect.name),)))
        for each in dialect.resources(services):
            route = Route(each.path, each.scope, dialect.errors, owner)
            operations = asked_of_resource(each.path, each.resource, each.scope, dialect.name)
            mounts.append(_Mount(route, each.resource, tuple(operations)))
    return mounts

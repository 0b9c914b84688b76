"""Who may pass: decided on the headers, after the route is known and before the body is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import falcon.asgi
import structlog

from tensorfold.contracts.auth import AuthSource, Credentials, Principal
from tensorfold.contracts.dialect import Scope
from tensorfold.errors import Forbidden, NotFound, Unauthorized
from tensorfold.http.routes import Routes
from tensorfold.http.visit import Visit

__all__ = ["Guard", "read_credentials"]


class Guard:
    """Falcon middleware, and the sink for paths that are no route: those ask for a key as well."""

    def __init__(self, sources: Sequence[AuthSource], routes: Routes) -> None:
        self._sources = tuple(sources)
        self._routes = routes

    @property
    def closed(self) -> bool:
        """Whether any key is needed at all."""
        return any(source.guards for source in self._sources)

    async def process_resource(
        self, req: falcon.asgi.Request, resp: falcon.asgi.Response, resource: object, params: object
    ) -> None:
        """Falcon calls this once the route is found."""
        route = self._routes.of(req.uri_template or "")
        visit = Visit.of(req.scope)
        visit.endpoint = route.path
        self._check(req, visit, route.scope)

    async def sink(self, req: falcon.asgi.Request, resp: falcon.asgi.Response | None, **params: Any) -> None:
        """Any other path."""
        self._check(req, Visit.of(req.scope), "api")
        raise NotFound(f"there is nothing at {req.path}", code="not_found")

    def _check(self, req: falcon.asgi.Request, visit: Visit, scope: Scope) -> None:
        if not self.closed:
            return
        visit.principal = self._identify(req)
        structlog.contextvars.bind_contextvars(label=visit.label)
        if scope == "open":
            return
        if visit.principal is None:
            raise Unauthorized(
                "this server asks for an API key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`",
                code="invalid_api_key",
            )
        if scope == "admin" and visit.principal.scope != "admin":
            raise Forbidden("this key may not manage the server", code="admin_key_needed")

    def _identify(self, req: falcon.asgi.Request) -> Principal | None:
        credentials = read_credentials(req.scope["headers"])
        # Every source is asked, so that the time does not tell which one knows the key.
        found = [source.identify(credentials) for source in self._sources if source.guards]
        return next((principal for principal in found if principal is not None), None)


def read_credentials(headers: Iterable[tuple[bytes, bytes]]) -> Credentials:
    """What the headers offer. A header that comes twice offers nothing: nobody can say which one counts."""
    offered: dict[bytes, list[bytes]] = {b"authorization": [], b"x-api-key": []}
    for name, value in headers:
        if name in offered:
            offered[name].append(value)
    bearer, key = (values[0] if len(values) == 1 else None for values in offered.values())
    return Credentials(bearer=_bearer(bearer), api_key=_text(key))


def _bearer(value: bytes | None) -> str | None:
    """The key of `Bearer KEY`; the scheme's case does not matter."""
    if value is None:
        return None
    scheme, _, key = value.partition(b" ")
    return _text(key.strip(b" ")) if scheme.lower() == b"bearer" else None


def _text(value: bytes | None) -> str | None:
    # Keys may be any text; bytes that are none stay apart from every text.
    return value.decode("utf-8", "surrogateescape") if value else None

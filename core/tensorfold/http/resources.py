"""The paths that belong to the core: health, models, metrics."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from tensorfold.contracts.dialect import Dialect
from tensorfold.contracts.engine import ModelInfo, Services
from tensorfold.errors import NotFound, PluginConflict
from tensorfold.http.guard import Guard
from tensorfold.http.visit import Visit
from tensorfold.ir import JSON
from tensorfold.observe.metrics import Metrics

if TYPE_CHECKING:
    import falcon.asgi

__all__ = ["Health", "MetricsText", "Model", "ModelCatalog", "Models"]

JSON_TYPE = "application/json"


class Health:
    """Whether the engine answers. Details only for those who may see them."""

    def __init__(self, services: Services, guard: Guard) -> None:
        self._services = services
        self._guard = guard

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """`{"status": "ok"}`, or another word and a 503."""
        status = self._services.engine.status()
        body: dict[str, JSON] = {"status": "ok" if status.healthy else "unhealthy"}
        if not self._guard.closed or Visit.of(req.scope).principal is not None:
            model = self._services.model
            body |= {
                "model": model.id,
                "context_length": model.window,
                "busy": status.running > 0,
                "requests_running": status.running,
                "requests_waiting": status.waiting,
            }
            body |= {key: value for key, value in status.details.items() if key not in body}
            if status.problem is not None:
                body["problem"] = status.problem
        resp.status = 200 if status.healthy else 503
        resp.content_type = JSON_TYPE
        resp.set_header("Cache-Control", "no-store")
        resp.data = msgspec.json.encode(body)

    on_head = on_get


class ModelCatalog:
    """Describes the served model under each of its names, in one payload that the SDKs of all dialects take."""

    def __init__(self, services: Services, dialects: Sequence[Dialect]) -> None:
        """
        Raises:
            PluginConflict: two dialects, or one and the core, describe a model under one key.
        """
        self._services = services
        self._dialects = tuple(dialects)
        self._check(services.model)

    def _check(self, model: ModelInfo) -> None:
        owners = dict.fromkeys(_core_entry(model), "the core")
        for dialect in self._dialects:
            for key in dialect.describe_model(model):
                if key in owners:
                    raise PluginConflict(
                        f"dialect {dialect.name} and {owners[key]} both describe models under the key {key!r}"
                    )
                owners[key] = f"dialect {dialect.name}"

    def entries(self) -> tuple[Mapping[str, JSON], ...]:
        """The served id first, then the aliases."""
        model = self._services.model
        return tuple(self._entry(dataclasses.replace(model, id=name)) for name in (model.id, *model.aliases))

    def find(self, name: str) -> Mapping[str, JSON]:
        """
        Raises:
            NotFound: no model is served under this name.
        """
        for entry in self.entries():
            if entry["id"] == name:
                return entry
        raise NotFound(f"no model is served under the name {name!r}", param="model", code="model_not_found")

    def _entry(self, model: ModelInfo) -> Mapping[str, JSON]:
        entry = _core_entry(model)
        for dialect in self._dialects:
            entry.update(dialect.describe_model(model))
        return entry


def _core_entry(model: ModelInfo) -> dict[str, JSON]:
    known: dict[str, JSON] = {"n_embd": model.width, "size": model.weights_bytes}
    created = datetime.datetime.fromtimestamp(model.created, datetime.UTC)
    return {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": "tensorfold",
        "type": "model",
        "display_name": model.id,
        "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_model_len": model.window,
        "meta": {
            "n_ctx": model.window,
            "n_ctx_train": model.trained_window,
            "n_vocab": model.vocabulary,
            "n_params": model.parameters,
            **{name: value for name, value in known.items() if value},
        },
    }


class Models:
    """`GET /v1/models`."""

    def __init__(self, catalog: ModelCatalog) -> None:
        self._catalog = catalog

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """The union of OpenAI's, Anthropic's and TypeSafe's lists."""
        entries = self._catalog.entries()
        briefs: list[JSON] = [
            {"name": entry["id"], "description": entry["display_name"], "release_date": str(entry["created_at"])[:10]}
            for entry in entries
        ]
        body: dict[str, JSON] = {
            "object": "list",
            "data": [dict(entry) for entry in entries],
            "has_more": False,
            "first_id": entries[0]["id"],
            "last_id": entries[-1]["id"],
            "models": briefs,
        }
        resp.content_type = JSON_TYPE
        resp.data = msgspec.json.encode(body)

    on_head = on_get


class Model:
    """`GET /v1/models/{id}`; ids may hold slashes."""

    def __init__(self, catalog: ModelCatalog) -> None:
        self._catalog = catalog

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, id: str) -> None:
        """One entry of the list."""
        resp.content_type = JSON_TYPE
        resp.data = msgspec.json.encode(self._catalog.find(id))

    on_head = on_get


class MetricsText:
    """`GET /metrics`, for Prometheus."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """All families that can be read."""
        resp.content_type = self._metrics.media_type
        resp.data = self._metrics.text()

    on_head = on_get

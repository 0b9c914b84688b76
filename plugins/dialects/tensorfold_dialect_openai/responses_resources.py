"""Stored responses: shown, listed by their input, removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tensorfold.errors import InvalidRequest, NotFound, Unsupported
from tensorfold.ir import JSON
from tensorfold_dialect_openai.responses_store import ResponseStore, StoredResponse

if TYPE_CHECKING:
    import falcon.asgi

__all__ = ["InputItems", "OneResponse"]

JSON_TYPE = "application/json"
MAX_LISTED = 100
"""Items of one page."""


def _found(store: ResponseStore, id: str) -> StoredResponse:
    stored = store.get(id)
    if stored is None:
        raise NotFound(f"no response {id[:80]!r} is stored", param="response_id", code="response_not_found")
    return stored


class OneResponse:
    """`/v1/responses/{id}`."""

    def __init__(self, store: ResponseStore) -> None:
        self._store = store

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, id: str) -> None:
        """The response as it was answered."""
        if req.get_param("stream") == "true":
            raise Unsupported("a stored response is not streamed again: ask for it without stream", param="stream")
        resp.content_type = JSON_TYPE
        resp.data = _found(self._store, id).body

    async def on_delete(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, id: str) -> None:
        """Forget it. Responses that went on from it know their conversation by themselves."""
        _found(self._store, id)
        self._store.remove(id)
        resp.content_type = JSON_TYPE
        resp.data = msgspec.json.encode({"id": id, "object": "response", "deleted": True})


class InputItems:
    """`/v1/responses/{id}/input_items`."""

    def __init__(self, store: ResponseStore) -> None:
        self._store = store

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response, id: str) -> None:
        """What the response's own turn put in, the last item first unless `order=asc`."""
        items = list(_found(self._store, id).items)
        if req.get_param("order") != "asc":
            items.reverse()
        limit = req.get_param_as_int("limit", default=20)
        if not 1 <= limit <= MAX_LISTED:
            raise InvalidRequest(f"limit must be between 1 and {MAX_LISTED}", param="limit")
        rest = _behind(items, req.get_param("after"))
        page: list[JSON] = [*rest[:limit]]
        body: dict[str, JSON] = {
            "object": "list",
            "data": page,
            "first_id": rest[0]["id"] if rest else None,
            "last_id": rest[len(page) - 1]["id"] if rest else None,
            "has_more": len(rest) > limit,
        }
        resp.content_type = JSON_TYPE
        resp.data = msgspec.json.encode(body)


def _behind(items: list[dict[str, JSON]], after: str | None) -> list[dict[str, JSON]]:
    if after is None:
        return items
    for index, item in enumerate(items):
        if item["id"] == after:
            return items[index + 1 :]
    raise InvalidRequest(f"after: there is no item {after[:80]!r}", param="after")

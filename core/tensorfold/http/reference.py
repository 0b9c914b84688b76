"""`/openapi.json` and `/docs`: the description of the API, for programs and for people."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, cast

import msgspec

from tensorfold.http.openapi import Operation, describe
from tensorfold.ir import JSON

if TYPE_CHECKING:
    import falcon.asgi

__all__ = ["Reference", "ReferenceJson", "ReferencePage"]

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 14px/1.45 ui-monospace, monospace; }
pre { overflow-x: auto; background: #8881; padding: .75rem; border-radius: .5rem; }
summary { cursor: pointer; padding: .25rem 0; }
summary b { display: inline-block; min-width: 4.5rem; text-transform: uppercase; }
:root { color-scheme: light dark; }
"""


class Reference:
    """The document, made when it is first asked for."""

    def __init__(self, operations: Iterable[Operation], version: str, *, guarded: bool) -> None:
        self.operations: Sequence[Operation] = sorted(operations, key=lambda each: (each.tag, each.path))
        self._version = version
        self._guarded = guarded
        self._document: dict[str, JSON] | None = None

    @property
    def document(self) -> dict[str, JSON]:
        """In OpenAPI's words."""
        if self._document is None:
            self._document = describe(self.operations, self._version, guarded=self._guarded)
        return self._document


class ReferenceJson:
    """`GET /openapi.json`."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """This description."""
        resp.content_type = "application/json"
        resp.data = msgspec.json.encode(self._reference.document)


class ReferencePage:
    """`GET /docs`: one page without scripts, which loads nothing from anywhere."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """This description, as a page."""
        resp.content_type = "text/html; charset=utf-8"
        resp.set_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
        resp.data = "\n".join(_page(self._reference)).encode()


def _page(reference: Reference) -> Iterator[str]:
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>tensorfold</title><style>{_STYLE}</style>"
    yield '<h1>tensorfold</h1><p>As a document: <a href="/openapi.json">openapi.json</a></p>'
    paths = cast("dict[str, dict[str, dict[str, JSON]]]", reference.document["paths"])
    for tag, operations in groupby(reference.operations, key=lambda each: each.tag):
        yield f"<h2>{html.escape(tag)}</h2>"
        for operation in operations:
            body = paths[operation.path][operation.method].get("requestBody")
            yield f"<details><summary><b>{operation.method}</b> <code>{html.escape(operation.path)}</code>"
            yield f" {html.escape(operation.about)}</summary>{_block(body)}</details>"
    yield "<h2>Types</h2>"
    components = cast("dict[str, dict[str, JSON]]", reference.document["components"])
    for name, schema in components["schemas"].items():
        yield f"<details><summary><code>{html.escape(name)}</code></summary>{_block(schema)}</details>"


def _block(value: JSON) -> str:
    if value is None:
        return "<p>no body</p>"
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return f"<pre>{html.escape(text)}</pre>"

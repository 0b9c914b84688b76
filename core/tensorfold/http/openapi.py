"""The description of the API, from the routes that are there and the types that their codecs read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tensorfold.contracts.dialect import Body, Endpoint, InquiryEndpoint, Scope
from tensorfold.ir import JSON

__all__ = ["Operation", "asked_of", "asked_of_resource", "describe"]

_VARIABLE = re.compile(r"\{(\w+)(?::\w+)?\}")
_METHODS = ("get", "post", "put", "patch", "delete")
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    """As OpenAPI writes it, variables without converters."""
    tag: str
    """The dialect, or `core`."""
    about: str
    scope: Scope
    bodies: tuple[Body, ...] = ()
    media: tuple[str, ...] = (_JSON,)
    """Of the answers."""


def asked_of(endpoint: Endpoint | InquiryEndpoint, tag: str) -> Operation:
    """The operation of an endpoint."""
    media = [endpoint.codec.media_type]
    if isinstance(endpoint, Endpoint):
        media.append(endpoint.codec.stream_media_type)
    path = _VARIABLE.sub(r"{\1}", endpoint.path)
    return Operation("post", path, tag, endpoint.about, endpoint.scope, endpoint.bodies, tuple(dict.fromkeys(media)))


def asked_of_resource(path: str, resource: object, scope: Scope, tag: str) -> list[Operation]:
    """The operations of a resource: its responders, in their own words."""
    found: list[Operation] = []
    for method in _METHODS:
        responder: object = getattr(resource, f"on_{method}", None)
        if responder is not None:
            about = (inspect.getdoc(responder) or "").partition("\n")[0]
            found.append(Operation(method, _VARIABLE.sub(r"{\1}", path), tag, about, scope))
    return found


def describe(operations: Sequence[Operation], version: str, *, guarded: bool) -> dict[str, JSON]:
    """The document, in OpenAPI 3.1. `guarded`: keys are asked for."""
    bodies = [body for operation in operations for body in operation.bodies]
    each = dict.fromkeys(type for body in bodies for type in (body if isinstance(body, tuple) else (body,)))
    types = tuple(filter(_describable, each))
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type: dict[type, JSON] = dict(zip(types, schemas, strict=True))
    paths: dict[str, JSON] = {}
    for operation in operations:
        entry = paths.setdefault(operation.path, {})
        assert isinstance(entry, dict)
        entry[operation.method] = _told(operation, by_type, guarded=guarded)
    described: dict[str, JSON] = {"schemas": dict(components)}
    if guarded:
        described["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "tensorfold", "version": version},
        "paths": paths,
        "components": described,
    }


def _describable(body: type) -> bool:
    """Whether a type has a schema; one whose defaults are no JSON has none, and stays undescribed."""
    try:
        msgspec.json.schema(body)
    except TypeError:
        return False
    return True


def _schema(body: Body, by_type: dict[type, JSON]) -> JSON:
    if isinstance(body, tuple):
        return {"allOf": [by_type.get(part, {}) for part in body]}
    return by_type.get(body, {})


def _told(operation: Operation, by_type: dict[type, JSON], *, guarded: bool) -> dict[str, JSON]:
    errors: dict[str, JSON] = {"description": "an error, in the API's own envelope", "content": {_JSON: {}}}
    content: dict[str, JSON] = {media: {} for media in operation.media}
    told: dict[str, JSON] = {
        "tags": [operation.tag],
        "summary": operation.about,
        "operationId": _id(operation),
        "responses": {"200": {"description": "the answer", "content": content}, "default": errors},
    }
    variables: list[JSON] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _VARIABLE.findall(operation.path)
    ]
    if variables:
        told["parameters"] = variables
    if operation.bodies:
        schemas = [_schema(body, by_type) for body in operation.bodies]
        schema: JSON = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        told["requestBody"] = {"required": True, "content": {_JSON: {"schema": schema}}}
    if guarded and operation.scope != "open":
        told["security"] = [{"bearer": []}, {"key": []}]
    return told


def _id(operation: Operation) -> str:
    return operation.method + re.sub(r"\W+", "_", operation.path)

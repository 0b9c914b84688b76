"""The smallest requests of the OpenAI dialect's two completion endpoints, with any field more, and how they are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.contracts.dialect import Exchange
from tensorfold.errors import RequestError
from tensorfold.ir import Request
from tensorfold.testing.dialects import CONTEXT, refusal
from tensorfold_dialect_openai import openai_dialect

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
CODECS = {endpoint.path: endpoint.codec for endpoint in openai_dialect().endpoints}
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
ONCE: dict[str, Any] = {"prompt": "Once"}
BOTH = pytest.mark.parametrize(("path", "base"), [(CHAT, HI), (COMPLETIONS, ONCE)], ids=["chat", "completions"])
"""For tests of what both endpoints read."""
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}}


def decode(body: dict[str, Any], path: str = CHAT) -> Exchange:
    """As the endpoint's codec reads it."""
    return CODECS[path].decode(json.dumps(body).encode(), CONTEXT)


def request(path: str = CHAT, **fields: Any) -> Request:
    """The smallest one of the path, with these fields."""
    return decode({**(HI if path == CHAT else ONCE), **fields}, path).requests[0]


def refused(path: str = CHAT, **fields: Any) -> RequestError:
    """The refusal of the smallest request of the path, with these fields."""
    return refusal(CODECS[path], json.dumps({**(HI if path == CHAT else ONCE), **fields}).encode())

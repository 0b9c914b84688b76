"""What reported requests have in common: paths, a message, a tool, and how a refusal has to look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorfold.testing.whole_server import WholeServer

Says = Callable[..., WholeServer]
"""The fixture `says`: from a reply to a server whose model gives it."""

CHAT, COMPLETIONS, RESPONSES, MESSAGES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
)
USER: dict[str, Any] = {"role": "user", "content": "hi"}
CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: dict[str, Any] = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}


def refused(server: WholeServer, path: str, body: dict[str, Any] | bytes) -> dict[str, Any]:
    """The error of a 400; it shows nothing of the code's inside, and the next request is served."""
    answered = server.post(path, body)
    assert answered.status_code == 400, (path, answered.text)
    for word in ("NoneType", "has no attribute", "Traceback", "msgspec"):
        assert word not in answered.text
    error = answered.json()["error"]
    assert isinstance(error, dict)
    assert server.post(CHAT, {"messages": [USER], "max_tokens": 1}).status_code == 200
    return error

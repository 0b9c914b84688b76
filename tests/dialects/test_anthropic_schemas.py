"""Messages whose text has to be of a schema, on the whole server, with the library and without."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tensorfold.chat.plain import PlainFormat
from tensorfold.testing.whole_server import WholeServer, whole_server
from tensorfold_dialect_anthropic import anthropic_dialect

TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant: "
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"isNewTopic": {"type": "boolean"}, "title": {"enum": ["Greeting", None]}},
    "required": ["isNewTopic", "title"],
    "additionalProperties": False,
}
TITLE: dict[str, Any] = {
    "model": "claude-haiku",
    "max_tokens": 512,
    "temperature": 0,
    "system": [{"type": "text", "text": "Generate a concise title for this session. Return JSON."}],
    "messages": [{"role": "user", "content": "hello there"}],
    "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
}
"""As a coding agent asks for its session's title."""
BETA = {key: value for key, value in TITLE.items() if key != "output_config"} | {
    "output_format": TITLE["output_config"]["format"]
}


@pytest.fixture
def server() -> Iterator[WholeServer]:
    with whole_server("Greeting", template=TEMPLATE, format=PlainFormat(), dialects=[anthropic_dialect()]) as server:
        yield server


@pytest.mark.requirement("T-376")
@pytest.mark.parametrize("body", [TITLE, BETA], ids=["output_config", "output_format"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_without_the_library_is_refused_with_the_way_to_get_it(
    server: WholeServer, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], stream: bool
) -> None:
    """Requests for a session's title included; what asks for no schema is served."""
    monkeypatch.setitem(sys.modules, "xgrammar", None)
    answered = server.post("/v1/messages", {**body, "stream": stream})
    assert answered.status_code == 400
    error = answered.json()
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
    assert "pip install 'tensorfold[grammar]'" in error["error"]["message"]
    free = {key: value for key, value in body.items() if key not in ("output_config", "output_format")}
    assert server.post("/v1/messages", free).status_code == 200


@pytest.mark.requirement("T-375", "T-376")
@pytest.mark.parametrize("body", [TITLE, BETA], ids=["output_config", "output_format"])
def test_a_title_keeps_to_its_schema_with_the_library(server: WholeServer, body: dict[str, Any]) -> None:
    """Whatever the model would have said."""
    pytest.importorskip("xgrammar", reason="structured output needs the extra `grammar`")
    (block,) = server.told("/v1/messages", body)["content"]
    title = json.loads(block["text"])
    assert list(title) == ["isNewTopic", "title"]
    assert isinstance(title["isNewTopic"], bool)
    assert title["title"] in ("Greeting", None)

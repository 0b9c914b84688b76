"""Recorded exchanges are replayed: the same IR, the same bytes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tensorfold.errors import RequestError
from tensorfold.ir import Event, Failed, fold
from tensorfold.testing.dialects import CONTEXT
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_ollama import ollama_dialect
from tensorfold_dialect_openai import openai_dialect

FOLDER = Path(__file__).parent / "golden"
RECORD = "TENSORFOLD_TEST_RECORD" in os.environ
DIALECTS = (anthropic_dialect(), ollama_dialect(), openai_dialect())
CODECS = {endpoint.path: endpoint.codec for dialect in DIALECTS for endpoint in dialect.endpoints}


def without_defaults(value: Any) -> Any:
    """The IR as builtins, without what was left at its default: a new field of the IR changes no file."""
    match value:
        case msgspec.Struct():
            kept = {
                field.name: getattr(value, field.name)
                for field in msgspec.structs.fields(value)
                if getattr(value, field.name) != field.default
            }
            tag = value.__struct_config__.tag
            told = {name: without_defaults(each) for name, each in kept.items() if each not in ((), {})}
            return {"type": tag, **told} if tag is not None else told
        case tuple():
            return [without_defaults(each) for each in value]
        case _:
            return value


def written(exchange: dict[str, Any]) -> str:
    """An exchange as a file: one line for each item of its lists."""

    def compact(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    entries = [
        f"  {compact(key)}: [\n    " + ",\n    ".join(map(compact, value)) + "\n  ]"
        if isinstance(value, list)
        else f"  {compact(key)}: {compact(value)}"
        for key, value in exchange.items()
    ]
    return "{\n" + ",\n".join(entries) + "\n}\n"


def replayed(exchange: dict[str, Any]) -> dict[str, Any]:
    """What the codec makes of an exchange's input."""
    given: dict[str, Any] = {key: exchange[key] for key in ("says", "path", "body", "events")}
    codec = CODECS[exchange["path"]]
    try:
        decoded = codec.decode(json.dumps(exchange["body"]).encode(), CONTEXT)
    except RequestError as error:
        return {**given, "error": json.loads(codec.encode_error(error, "req_1"))}
    events = msgspec.convert(exchange["events"], list[Event])
    result = {**given, "requests": [without_defaults(request) for request in decoded.requests]}
    if not isinstance(events[-1], Failed):
        result["answer"] = decoded.answer(fold(events)).decode()
    encoder = decoded.encoder()
    result["stream"] = b"".join(map(encoder.feed, events)).decode().split("\n")
    return result


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.json")), ids=lambda file: file.stem)
def test_the_exchange_is_as_recorded(file: Path) -> None:
    exchange = json.loads(file.read_text())
    now = json.loads(json.dumps(replayed(exchange)))
    if RECORD:
        file.write_text(written(now))
    assert now == exchange or RECORD


def test_there_are_exchanges_of_every_endpoint() -> None:
    paths = [json.loads(file.read_text())["path"] for file in FOLDER.rglob("*.json")]
    assert set(paths) == set(CODECS)

"""What is asked in a soak, and what has to be the same of two answers to one request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["BAD", "CASES", "Case", "signature"]

LONG = "the hello world and other words of the you to be " * 24
"""Some hundred tokens: a prompt whose computing takes a while."""
TOOLS = [
    {
        "type": "function",
        "function": {"name": "look", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}},
    }
]
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "ok": {"type": "boolean"}},
    "required": ["n", "ok"],
}


@dataclass(frozen=True)
class Case:
    """One request."""

    name: str
    path: str
    body: Mapping[str, Any]

    @property
    def streams(self) -> bool:
        """Whether its answer comes in pieces."""
        return bool(self.body.get("stream"))


def _chat(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": text}]}


def _cases() -> Iterator[Case]:
    for stream in (False, True):
        how = " streamed" if stream else ""
        sampled = {"temperature": 0.9, "seed": 3, "stream": stream}
        greedy = {"temperature": 0, "stream": stream}
        chat, text = "/v1/chat/completions", "/v1/completions"
        yield Case(f"chat{how}", chat, {**_chat("hello"), **sampled, "max_tokens": 24})
        yield Case(f"chat of a long prompt{how}", chat, {**_chat(LONG), **greedy, "max_tokens": 8})
        yield Case(f"chat with tools{how}", chat, {**_chat("look"), **greedy, "tools": TOOLS, "max_tokens": 24})
        schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
        yield Case(
            f"chat bound to a schema{how}",
            chat,
            {**_chat("n?"), **sampled, "response_format": schema, "max_tokens": 32},
        )
        yield Case(f"two choices{how}", chat, {**_chat("hello"), **sampled, "n": 2, "max_tokens": 12})
        yield Case(f"text{how}", text, {"prompt": "once upon a time", **greedy, "max_tokens": 40, "ignore_eos": True})
        yield Case(
            f"text with numbers{how}", text, {"prompt": "the the the", **sampled, "logprobs": 3, "max_tokens": 12}
        )
        yield Case(f"background{how}", text, {"prompt": LONG, **sampled, "priority": "background", "max_tokens": 16})
        yield Case(
            f"responses{how}", "/v1/responses", {"input": "hello", **sampled, "store": False, "max_output_tokens": 16}
        )
        yield Case(f"messages{how}", "/v1/messages", {**_messages("hello"), **greedy, "max_tokens": 16})
        yield Case(
            f"ollama chat{how}",
            "/api/chat",
            {"model": "", **_chat("hello"), "stream": stream, "options": {"num_predict": 12, "seed": 1}},
        )
        yield Case(
            f"ollama generate{how}",
            "/api/generate",
            {"model": "", "prompt": "hello", "stream": stream, "options": {"num_predict": 12, "temperature": 0}},
        )
    yield Case("count", "/v1/messages/count_tokens", _messages("hello"))
    yield Case("tokens", "/tokenize", {"prompt": "hello world"})


def _messages(text: str) -> dict[str, Any]:
    return {"model": "", "system": "be brief", "messages": [{"role": "user", "content": text}]}


CASES = tuple(_cases())

BAD: tuple[tuple[str, bytes], ...] = (
    ("/v1/chat/completions", b"{"),
    ("/v1/chat/completions", b"[]"),
    ("/v1/chat/completions", b'{"messages": []}'),
    ("/v1/chat/completions", b'{"messages": [{"role": "nobody", "content": 7}]}'),
    ("/v1/completions", b'{"prompt": [99999999], "max_tokens": 1}'),
    ("/v1/completions", b'{"prompt": "x", "temperature": -1}'),
    ("/v1/completions", json.dumps({"prompt": LONG * 50}).encode()),
    ("/v1/responses", b'{"input": {"a": 1}}'),
    ("/v1/messages", b'{"max_tokens": 1, "messages": [{"role": "nobody", "content": "x"}]}'),
    ("/api/chat", b'{"messages": 7}'),
    ("/v1/nothing", b"{}"),
)
"""Each is refused with a 4xx."""

_PASSING = frozenset(
    {
        *("id", "created", "created_at", "timings", "usage", "system_fingerprint", "item_id", "response_id", "call_id"),
        *(
            "total_duration",
            "load_duration",
            "prompt_eval_duration",
            "eval_duration",
            "prompt_eval_count",
            "completed_at",
        ),
    }
)
"""What two answers to one request need not share."""


def signature(answer: str) -> str:
    """The digests of an answer's tokens, wherever they stand; where there are none, all that does not pass."""
    told = [
        json.loads(line.removeprefix("data: "))
        for line in answer.splitlines()
        if line.removeprefix("data: ").startswith("{")
    ]
    shas = [sha for each in told for sha in _digests(each)]
    if shas:
        return "sha " + ",".join(shas)
    return json.dumps([_lasting(each) for each in told], sort_keys=True) or answer


def _digests(value: Any) -> Iterator[str]:
    match value:
        case {"token_sha": str() as sha}:
            yield sha
        case {"token_sha": list() as shas}:
            yield from shas
        case dict():
            for each in value.values():
                yield from _digests(each)
        case list():
            for each in value:
                yield from _digests(each)
        case _:
            pass


def _lasting(value: Any) -> Any:
    match value:
        case dict():
            return {key: _lasting(each) for key, each in value.items() if key not in _PASSING}
        case list():
            return [_lasting(each) for each in value]
        case _:
            return value

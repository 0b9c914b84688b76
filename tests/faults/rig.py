"""A real server over the real engine and a scripted model, with every dialect that generates; and how each is asked."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from tensorfold.contracts.dialect import Dialect
from tensorfold.engine.engine import LocalEngine
from tensorfold.http import create_app
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.scripted import Script
from tensorfold.testing.serving import served
from tensorfold.testing.toy_engine import toy_engine
from tensorfold.testing.toy_tokenizer import ToyTokenizer
from tensorfold.testing.waiting import until
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_ollama import ollama_dialect
from tensorfold_dialect_openai import openai_dialect

REPLY = b"a reply of some length"


@dataclass(frozen=True)
class Ask:
    """One endpoint: its body for a prompt, and what the model then reads."""

    path: str
    body: Callable[[str], dict[str, Any]]
    chat: bool = True

    def ids(self, prompt: str) -> tuple[int, ...]:
        """The prompt's tokens."""
        return tuple((f"user: {prompt}\nassistant: " if self.chat else prompt).encode())

    def post(self, client: httpx.Client, prompt: str, *, stream: bool) -> httpx.Response:
        """Ask, and read the whole answer."""
        return client.post(self.path, json={**self.body(prompt), "stream": stream})


def _chat(prompt: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}], "max_tokens": 60}


ASKS = {
    "chat": Ask("/v1/chat/completions", _chat),
    "completions": Ask("/v1/completions", lambda prompt: {"prompt": prompt, "max_tokens": 60}, chat=False),
    "responses": Ask("/v1/responses", lambda prompt: {"input": prompt, "max_output_tokens": 60}),
    "messages": Ask("/v1/messages", _chat),
    "ollama chat": Ask("/api/chat", lambda prompt: {"model": MODEL.id, **_chat(prompt)}),
    "ollama generate": Ask("/api/generate", lambda prompt: {"model": MODEL.id, "prompt": prompt}),
}
"""Every endpoint that generates."""


def script(ask: Ask, prompt: str, **fields: Any) -> Script:
    """What the model says to a prompt."""
    return Script(ask.ids(prompt), tuple(REPLY), **fields)


class Rig:
    """A running server."""

    def __init__(self, engine: LocalEngine, client: httpx.Client) -> None:
        self.engine = engine
        self.client = client

    def health(self) -> tuple[int, dict[str, Any]]:
        """The status, and what is told."""
        answer = self.client.get("/health")
        return answer.status_code, answer.json()

    def idle(self) -> None:
        """Wait until nothing runs, and hold that nothing of a request is left."""
        until(lambda: self.engine.status().running + self.engine.status().waiting == 0)
        health = self.engine.status()
        assert health.healthy
        assert health.details["streams"] == {"decoding": 0, "prefilling": 0, "maximum": 4}


@contextlib.contextmanager
def rig(scripts: Sequence[Script] = (), *, dialects: Sequence[Dialect] | None = None, **engine: Any) -> Generator[Rig]:
    """Serve; `engine` goes to `toy_engine`."""
    tokenizer = engine.pop("tokenizer", None) or ToyTokenizer()
    made = toy_engine(scripts, tokenizer=tokenizer, **engine)
    model = dataclasses.replace(MODEL, window=made.window, vocabulary=tokenizer.size)
    every = (anthropic_dialect(), ollama_dialect(), openai_dialect()) if dialects is None else dialects
    made.start()
    app = create_app(engine=made, model=model, dialects=every, tokenizer=tokenizer)
    with served(app) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield Rig(made, client)


def error_of(answer: httpx.Response) -> str:
    """The message of an error answer, or of the error that ends a stream, in whichever dialect's form."""
    told = (
        [answer.json()] if "stream" not in answer.headers["content-type"] and not _lines(answer) else _objects(answer)
    )
    for each in reversed(told):
        match each:
            case {"error": str() as message} | {"error": {"message": str() as message}}:
                return message
            case {"response": {"error": {"message": str() as message}}}:
                return message
            case {"type": "error", "message": str() as message}:
                return message
            case _:
                continue
    raise AssertionError(f"no error is told: {answer.text}")


def text_of(answer: httpx.Response) -> str:
    """All text that an answer carries, whole or streamed, whatever the dialect."""
    return "".join(_texts(_objects(answer) if _lines(answer) else [answer.json()]))


def _lines(answer: httpx.Response) -> bool:
    media = answer.headers["content-type"].partition(";")[0]
    return media in ("text/event-stream", "application/x-ndjson")


def _objects(answer: httpx.Response) -> list[Any]:
    texts = [line.removeprefix("data: ") for line in answer.text.splitlines()]
    return [json.loads(text) for text in texts if text.startswith("{")]


def _texts(told: Sequence[Any]) -> Generator[str]:
    for each in told:
        match each:
            case {"choices": [{"delta": {"content": str() as text}}, *_]} | {"choices": [{"text": str() as text}, *_]}:
                yield text
            case {"choices": [{"message": {"content": str() as text}}, *_]}:
                yield text
            case {"type": "response.output_text.delta", "delta": str() as text}:
                yield text
            case {"object": "response", "output": list() as output}:
                yield from (part["text"] for item in output for part in item.get("content", ()))
            case {"type": "content_block_delta", "delta": {"text": str() as text}}:
                yield text
            case {"type": "message", "content": list() as content}:
                yield from (part["text"] for part in content)
            case {"message": {"content": str() as text}} | {"response": str() as text}:
                yield text
            case _:
                pass

"""One streamed completion of an OpenAI-compatible server, as chat and bench see it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias, cast

from tensorfold.cli.client import Client, Reply
from tensorfold.cli.sse import data_of
from tensorfold.errors import ClientError
from tensorfold.ir import JSON

__all__ = ["Done", "Piece", "Update", "model_of", "refusal", "stream"]


@dataclass(frozen=True, slots=True)
class Piece:
    """More of the reply's text."""

    text: str
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The reply has ended."""

    reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None


Update: TypeAlias = Piece | Done


async def stream(client: Client, path: str, body: Mapping[str, JSON]) -> AsyncGenerator[Update]:
    """A streamed reply; `Done` comes last.

    Raises:
        ClientError: the server refuses, fails or breaks off.
    """
    reason: str | None = None
    usage: Mapping[str, JSON] = {}
    asked: dict[str, JSON] = {**body, "stream": True, "stream_options": {"include_usage": True}}
    async with client.request("POST", path, asked) as reply:
        if reply.status != 200:
            raise await refusal(reply)
        async with aclosing(data_of(reply.chunks())) as events:
            async for data in events:
                if data == "[DONE]":
                    continue
                event = _event(data)
                if "error" in event:
                    raise ClientError(_message(event["error"]))
                usage = _object(event.get("usage")) or usage
                choices = event.get("choices")
                for choice in choices if isinstance(choices, list) else ():
                    said = _object(choice)
                    if isinstance(ended := said.get("finish_reason"), str):
                        reason = ended
                    for piece in _pieces(said):
                        yield piece
    yield Done(reason, _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))


async def model_of(client: Client) -> str:
    """The ID of the first model that the server lists.

    Raises:
        ClientError: it refuses, or lists none.
    """
    async with client.request("GET", "/v1/models") as reply:
        if reply.status != 200:
            raise await refusal(reply)
        listed = _object(await reply.json()).get("data")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(id := _object(each).get("id"), str):
            return id
    raise ClientError(f"{client.address} lists no model")


async def refusal(reply: Reply) -> ClientError:
    """The error that an answer tells of."""
    body = await reply.body()
    try:
        message = _message(_object(json.loads(body)).get("error"))
    except ValueError:
        message = body[:200].decode(errors="replace")
    return ClientError(f"the server answers {reply.status}: {message}")


def _event(data: str) -> Mapping[str, JSON]:
    try:
        return _object(json.loads(data))
    except ValueError:
        raise ClientError(f"the server sent an event that is no JSON: {data[:200]}") from None


def _pieces(choice: Mapping[str, JSON]) -> list[Piece]:
    """A choice's text, in the words of chat or of completions."""
    delta = _object(choice.get("delta"))
    thinking = delta.get("reasoning_content") or delta.get("reasoning")
    text = delta.get("content") or choice.get("text")
    return [Piece(said, thinks) for said, thinks in ((thinking, True), (text, False)) if isinstance(said, str) and said]


def _object(value: object) -> Mapping[str, JSON]:
    return cast("Mapping[str, JSON]", value) if isinstance(value, dict) else {}


def _message(error: JSON) -> str:
    match error:
        case {"message": str() as message}:
            return message
        case _:
            return json.dumps(error)


def _count(value: JSON) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None

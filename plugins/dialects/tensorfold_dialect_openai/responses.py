"""`POST /v1/responses`, run as the equivalent chat completion; and the count of a prompt's tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tensorfold.contracts.dialect import DecodeContext, Exchange, Inquiry, StreamEncoder
from tensorfold.contracts.engine import Services
from tensorfold.errors import InvalidRequest
from tensorfold.ir import JSON, Answer, ChoiceAnswer, Event, Message, Part, Request, Stopped, Text, Thinking, fold
from tensorfold.wire import BodyDecoder, decode_value
from tensorfold_dialect_openai.controls import StreamOptions
from tensorfold_dialect_openai.errors import OpenAIErrors
from tensorfold_dialect_openai.responses_body import ResponsesBody, build_request, field_names, new_messages
from tensorfold_dialect_openai.responses_output import ResponseBody, ended, items_of, opening
from tensorfold_dialect_openai.responses_store import Conversation, ResponseStore, StoredResponse
from tensorfold_dialect_openai.responses_stream import ResponseEncoder
from tensorfold_dialect_openai.responses_unserved import RESPONSES_FIELDS
from tensorfold_dialect_openai.stream import KEEP_ALIVE

__all__ = ["InputTokensCodec", "ResponsesCodec", "ResponsesExchange"]


class GivenInput(msgspec.Struct):
    """A body's input as it was written."""

    input: str | list[dict[str, JSON]] | None = None


class Reader:
    """Reads bodies, and the conversations that they go on with."""

    def __init__(self, store: ResponseStore) -> None:
        self._store = store
        self._bodies = BodyDecoder(ResponsesBody, RESPONSES_FIELDS)

    def read(self, body: bytes, context: DecodeContext) -> tuple[ResponsesBody, Request, Conversation]:
        """The body, the request, and the conversation up to this turn's reply.

        Raises:
            DecodeError, InvalidRequest, Unsupported: it cannot be answered.
        """
        wanted = self._bodies.decode(body)
        earlier = self._earlier(wanted.previous_response_id)
        added = new_messages(wanted)
        request = build_request(wanted, earlier.messages, added, context)
        return wanted, request, earlier.and_then(added)

    def _earlier(self, id: str | None) -> Conversation:
        if id is None:
            return Conversation()
        stored = self._store.get(id)
        if stored is None:
            raise InvalidRequest(
                f"no response {id[:80]!r} is stored: it was not asked to be, was removed, or is too old",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return stored.conversation


class ResponsesCodec(OpenAIErrors):
    """Decodes bodies. The store is its one state: finished responses, by id."""

    stream_media_type = "text/event-stream"
    keep_alive = KEEP_ALIVE

    def __init__(self, store: ResponseStore) -> None:
        self._store = store
        self._reader = Reader(store)
        self._given = msgspec.json.Decoder(GivenInput)

    def decode(self, body: bytes, context: DecodeContext) -> Exchange:
        """A turn of a conversation."""
        wanted, request, conversation = self._reader.read(body, context)
        response = opening(wanted, request.sampling, context)
        items = _items(decode_value(self._given, body).input, context.request_id) if response.store else ()
        keeper = _Keeper(self._store, items, conversation)
        return ResponsesExchange(request, wanted, response, keeper)


def _items(given: str | list[dict[str, JSON]] | None, id: str) -> tuple[dict[str, JSON], ...]:
    """The input as items with ids, for those who list it."""
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return tuple(_item(item, f"{id}_in_{index}") for index, item in enumerate(given or ()))


def _item(item: dict[str, JSON], id: str) -> dict[str, JSON]:
    told: dict[str, JSON] = {"type": "message", **item, "id": item.get("id") or f"msg_{id}"}
    content = told.get("content")
    if told["type"] == "message" and isinstance(content, str):
        kind = "output_text" if told.get("role") == "assistant" else "input_text"
        told["content"] = [{"type": kind, "text": content, **({"annotations": []} if kind == "output_text" else {})}]
    return {"status": "completed", **told}


class _Keeper:
    """Puts a finished response into the store, with the conversation as a chat client would send it next."""

    def __init__(self, store: ResponseStore, items: tuple[dict[str, JSON], ...], before: Conversation) -> None:
        self._store = store
        self._items = items
        self._before = before

    def keep(self, response: ResponseBody, choice: ChoiceAnswer) -> bytes:
        """The response's body; it is kept if that was asked for."""
        body = msgspec.json.encode(response)
        if response.store:
            conversation = self._before.and_then((_reply(choice),))
            self._store.put(StoredResponse(response.id, body, self._items, conversation))
        return body


def _reply(choice: ChoiceAnswer) -> Message:
    parts: list[Part] = []
    if choice.thinking:
        parts.append(Thinking(choice.thinking))
    if choice.text:
        parts.append(Text(choice.text))
    return Message("assistant", (*parts, *choice.calls))


class ResponsesExchange:
    """One turn and the way to answer it."""

    def __init__(self, request: Request, wanted: ResponsesBody, response: ResponseBody, keeper: _Keeper) -> None:
        self.requests = (request,)
        self.stream = bool(wanted.stream)
        self._wanted = wanted
        self._options = wanted.stream_options or StreamOptions()
        self._response = response
        self._keeper = keeper

    @property
    def names(self) -> Mapping[str, str]:
        """For errors alone, so it is read when there is one."""
        return field_names(self._wanted)

    def answer(self, answer: Answer) -> bytes:
        """A `response`."""
        (choice,) = answer.choices
        items = items_of(self._response.id, choice)
        stopped = Stopped(0, choice.reason, choice.detail)
        response = ended(self._response, items, stopped, answer.usage, answer.timings, answer.token_sha)
        return self._keeper.keep(response, choice)

    def encoder(self) -> StreamEncoder:
        """A stream of events, from `response.created` to `response.completed`."""

        def keep(response: ResponseBody, events: Iterable[Event]) -> None:
            self._keeper.keep(response, fold(events).choices[0])

        return ResponseEncoder(self._response, keep, bool(self._options.include_obfuscation))


class InputTokens(msgspec.Struct):
    """A count."""

    input_tokens: int
    object: str = "response.input_tokens"


class InputTokensCodec(OpenAIErrors):
    """Decodes the same bodies, to count their prompts' tokens."""

    def __init__(self, store: ResponseStore) -> None:
        self._reader = Reader(store)

    def decode(self, body: bytes, context: DecodeContext) -> Inquiry:
        """A turn to count."""
        wanted, request, _ = self._reader.read(body, context)
        return CountInquiry(request, wanted)


class CountInquiry:
    """One turn."""

    def __init__(self, request: Request, wanted: ResponsesBody) -> None:
        self._request = request
        self._wanted = wanted

    @property
    def names(self) -> Mapping[str, str]:
        """As of a turn that is answered."""
        return field_names(self._wanted)

    async def answer(self, services: Services) -> bytes:
        """`{"object": "response.input_tokens", "input_tokens": n}`."""
        return msgspec.json.encode(InputTokens(len((await services.engine.prepare(self._request)).ids)))

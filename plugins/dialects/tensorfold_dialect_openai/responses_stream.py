"""Server-sent events: a response, item by item."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from tensorfold.ir import (
    Event,
    Failed,
    Finished,
    Progress,
    Queued,
    Started,
    Stopped,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from tensorfold_dialect_openai.responses_output import (
    Item,
    OutputText,
    ReasoningText,
    ResponseBody,
    Status,
    call_item,
    ended,
    failed,
    item_status,
    message_item,
    reasoning_item,
)

__all__ = ["ResponseEncoder"]

_FILL = 64
"""An obfuscated event's payload is a multiple of so many bytes."""


class LifeEvent(msgspec.Struct):
    """Something happened to the response as a whole."""

    type: str
    sequence_number: int
    response: ResponseBody


class ItemEvent(msgspec.Struct):
    """An item begins or ends."""

    type: str
    sequence_number: int
    output_index: int
    item: Item


class PartEvent(msgspec.Struct):
    """A part of an item begins or ends."""

    type: str
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    part: OutputText | ReasoningText


class TextEvent(msgspec.Struct):
    """A part grows, or is whole."""

    type: str
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    logprobs: tuple[()] | UnsetType = UNSET
    obfuscation: str | UnsetType = UNSET


class CallEvent(msgspec.Struct):
    """A call's arguments grow, or are whole."""

    type: str
    sequence_number: int
    item_id: str
    output_index: int
    delta: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    obfuscation: str | UnsetType = UNSET


Told: TypeAlias = LifeEvent | ItemEvent | PartEvent | TextEvent | CallEvent
Kind: TypeAlias = Literal["reasoning", "message"]


class _Open:
    """The item that is being written."""

    def __init__(self, kind: Kind | int, call: tuple[str, str]) -> None:
        self.kind: Kind | int = kind
        """Or the number of a call."""
        self.call = call
        """Its id and name."""
        self.pieces: list[str] = []

    def item(self, response: str, number: int, status: Status, *, begins: bool = False) -> Item:
        """The item as it stands."""
        text = None if begins else "".join(self.pieces)
        match self.kind:
            case "reasoning":
                return reasoning_item(response, number, status, text)
            case "message":
                return message_item(response, number, status, text)
            case _:
                return call_item(response, number, status, (*self.call, text or ""))


class ResponseEncoder:
    """Encodes one stream. One item is open at a time; a delta of another kind ends it and opens the next."""

    def __init__(
        self, response: ResponseBody, keep: Callable[[ResponseBody, list[Event]], None], obfuscate: bool
    ) -> None:
        """`keep` is given the finished response, and what its reply was, before the last event is told."""
        self._response = response
        self._keep = keep
        self._obfuscate = obfuscate
        self._sequence = 0
        self._items: list[Item] = []
        self._open: _Open | None = None
        self._blanks = ""
        """Text at the start of a message, held until it is more than blanks or the reply ends."""
        self._stopped = Stopped(0, "end")
        self._events: list[Event] = []

    def feed(self, event: Event) -> bytes:
        """The bytes that tell of this event."""
        self._events.append(event)
        match event:
            case Queued():
                return self._life("response.created") + self._life("response.in_progress")
            case Started() | Progress():
                return b""
            case ThinkingDelta(_, text):
                return self._text("reasoning", text) if text else b""
            case TextDelta(_, text):
                return self._message(text)
            case ToolCallDelta():
                return self._call(event)
            case Stopped():
                self._stopped = event
                return self._stop()
            case Finished():
                return self._finish(event)
            case Failed():
                closed = self._close("incomplete")
                self._response = failed(self._response, self._items, event.error())
                return closed + self._life("response.failed")

    def _message(self, text: str) -> bytes:
        if self._open is None or self._open.kind != "message":
            text = self._blanks + text
            self._blanks = "" if text.strip() else text
            if self._blanks:
                return b""
        return self._text("message", text) if text else b""

    def _text(self, kind: Kind, text: str) -> bytes:
        opened, item = self._opened(kind, ("", ""))
        item.pieces.append(text)
        event = self._text_event(f"response.{_WORDS[kind]}.delta")
        event.delta = text
        return opened + self._delta(event)

    def _call(self, delta: ToolCallDelta) -> bytes:
        opened, item = self._opened(delta.index, (delta.id or "", delta.name or ""))
        if not delta.arguments:
            return opened
        item.pieces.append(delta.arguments)
        event = self._call_event("response.function_call_arguments.delta")
        event.delta = delta.arguments
        return opened + self._delta(event)

    def _opened(self, kind: Kind | int, call: tuple[str, str]) -> tuple[bytes, _Open]:
        """Open an item, unless it is open."""
        if self._open is not None and self._open.kind == kind:
            return b"", self._open
        closed, self._blanks = self._close("completed"), ""
        item = self._open = _Open(kind, call)
        told = self._item_event("response.output_item.added", "in_progress", begins=True)
        if not isinstance(kind, int):
            told += self._part("response.content_part.added", kind, "")
        return closed + told, item

    def _close(self, status: Status) -> bytes:
        """End the open item, if any."""
        if self._open is None:
            return b""
        kind = self._open.kind
        text = "".join(self._open.pieces)
        if not isinstance(kind, int):
            whole = self._text_event(f"response.{_WORDS[kind]}.done")
            whole.text = text
            told = self._framed(whole) + self._part("response.content_part.done", kind, text)
        else:
            done = self._call_event("response.function_call_arguments.done")
            done.arguments, done.name = text, self._open.call[1]
            told = self._framed(done)
        told += self._item_event("response.output_item.done", status)
        self._items.append(self._open.item(self._response.id, len(self._items), status))
        self._open = None
        return told

    def _stop(self) -> bytes:
        late = b""
        if self._blanks and not any(isinstance(event, ToolCallDelta) for event in self._events):
            late = self._text("message", self._blanks)
        return late + self._close(item_status(self._stopped.reason))

    def _finish(self, event: Finished) -> bytes:
        self._response = ended(self._response, self._items, self._stopped, event.usage, event.timings, event.token_sha)
        self._keep(self._response, self._events)
        return self._life(f"response.{self._response.status}")

    # ---- events ----

    def _life(self, type: str) -> bytes:
        return self._framed(LifeEvent(type, self._sequence, self._response))

    def _item_event(self, type: str, status: Status, *, begins: bool = False) -> bytes:
        assert self._open is not None
        item = self._open.item(self._response.id, len(self._items), status, begins=begins)
        return self._framed(ItemEvent(type, self._sequence, len(self._items), item))

    def _part(self, type: str, kind: Kind, text: str) -> bytes:
        part = OutputText(text) if kind == "message" else ReasoningText(text)
        return self._framed(PartEvent(type, self._sequence, self._item_id(), len(self._items), 0, part))

    def _text_event(self, type: str) -> TextEvent:
        event = TextEvent(type, self._sequence, self._item_id(), len(self._items), 0)
        if type.startswith("response.output_text"):
            event.logprobs = ()
        return event

    def _call_event(self, type: str) -> CallEvent:
        return CallEvent(type, self._sequence, self._item_id(), len(self._items))

    def _item_id(self) -> str:
        assert self._open is not None
        return self._open.item(self._response.id, len(self._items), "in_progress", begins=True).id

    def _delta(self, event: TextEvent | CallEvent) -> bytes:
        if self._obfuscate:
            event.obfuscation = ""
            event.obfuscation = "0" * (-len(msgspec.json.encode(event)) % _FILL)
        return self._framed(event)

    def _framed(self, event: Told) -> bytes:
        self._sequence += 1
        return b"event: " + event.type.encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"


_WORDS = {"reasoning": "reasoning_text", "message": "output_text"}
"""Of a part's text, in the names of events."""

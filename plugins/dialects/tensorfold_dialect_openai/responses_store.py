"""Finished responses, in memory, so that a conversation can go on from one of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import msgspec

from tensorfold.ir import JSON, Message

__all__ = ["MAX_BYTES", "MAX_RESPONSES", "Conversation", "ResponseStore", "StoredResponse"]

MAX_RESPONSES = 1024
MAX_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages, and what they take."""

    messages: tuple[Message, ...] = ()
    bytes: int = 0
    """As JSON; nearly what they take in memory."""

    def and_then(self, messages: tuple[Message, ...]) -> Conversation:
        """The conversation with more messages. Those before are shared, not copied."""
        return Conversation((*self.messages, *messages), self.bytes + len(msgspec.json.encode(messages)))


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One response."""

    id: str
    body: bytes
    """The response as it was answered."""
    items: tuple[dict[str, JSON], ...]
    """What this turn's input was."""
    conversation: Conversation
    """All turns up to the reply, without instructions."""

    @property
    def bytes(self) -> int:
        """What it takes, as if it shared nothing with others."""
        return len(self.body) + len(msgspec.json.encode(self.items)) + self.conversation.bytes


class ResponseStore:
    """The newest responses, bounded by their number and their bytes. Used from several threads."""

    def __init__(self, *, most: int = MAX_RESPONSES, most_bytes: int = MAX_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[StoredResponse, int]] = OrderedDict()
        self._bytes = 0

    def put(self, response: StoredResponse) -> None:
        """Keep a response, and let the oldest ones go. One that is larger than the whole store is not kept."""
        size = response.bytes
        with self._lock:
            self._drop(response.id)
            if size > self._most_bytes:
                return
            self._kept[response.id] = response, size
            self._bytes += size
            while len(self._kept) > self._most or self._bytes > self._most_bytes:
                self._drop(next(iter(self._kept)))

    def get(self, id: str) -> StoredResponse | None:
        """The response, if it is still kept."""
        with self._lock:
            found = self._kept.get(id)
        return None if found is None else found[0]

    def remove(self, id: str) -> bool:
        """Forget a response; False when it was not there."""
        with self._lock:
            return self._drop(id)

    def _drop(self, id: str) -> bool:
        found = self._kept.pop(id, None)
        if found is not None:
            self._bytes -= found[1]
        return found is not None

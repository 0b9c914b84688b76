"""Events on their way to one client. The reader awaits one thing, whatever comes: events, silence, or a hang-up."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

from tensorfold.http.connection import ClientGone
from tensorfold.http.outlet import Outlet
from tensorfold.ir import Event, TextDelta, ThinkingDelta, ToolCallDelta

__all__ = ["Inbox"]

_MERGE_FROM = 256
"""As many events may wait as they came; with more, neighbouring texts become one event."""
_MERGED = 4096
"""Characters of a merged text; bounds the copying."""
_EVENT = 64
"""What an event counts for besides its text."""


class Inbox:
    """A bounded queue of one writer's events to one reader, on one event loop."""

    def __init__(self, limit: int) -> None:
        """`limit`: characters that may wait."""
        self._limit = limit
        self._events: list[Event] = []
        self._size = 0
        self._gone = False
        self._silent = False
        self._ended = False
        """Whether the last event has come."""
        self._reader: asyncio.Future[None] | None = None
        self._relay: _Relay | None = None

    def put(self, event: Event) -> bool:
        """Add an event; False when too much is waiting, and the event is lost. After a hang-up all are dropped."""
        if self._gone:
            return True
        if self._size > self._limit:
            return False
        self._size += _length(event)
        waiting = len(self._events)
        if waiting >= _MERGE_FROM and (merged := _merged(self._events[-1], event)) is not None:
            self._events[-1] = merged
            return True
        self._events.append(event)
        self._size += _EVENT
        if not waiting:
            self._wake()
        return True

    def end(self, event: Event) -> None:
        """Add the last event, however much is waiting."""
        if not self._gone:
            self._ended = True
            self._events.append(event)
            self._wake()

    def hang_up(self) -> None:
        """The client has gone: what waits is dropped, and the reader is told at once."""
        self._gone = True
        self._events.clear()
        self._wake()

    @property
    def gone(self) -> bool:
        """Whether the client has gone."""
        return self._gone

    @property
    def over(self) -> bool:
        """Whether the last event was taken."""
        return self._ended and not self._events

    @property
    def _news(self) -> bool:
        return bool(self._events) or self._gone or self._silent

    def silence(self) -> None:
        """Wake the reader with no events, so that it can say that it is still there."""
        self._silent = True
        self._wake()

    async def take(self) -> list[Event]:
        """All events that wait, at least one; none after a silence.

        Raises:
            ClientGone: the client has hung up.
        """
        if not self._news:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self.taken()

    def taken(self) -> list[Event]:
        """All events that wait, without waiting for one.

        Raises:
            ClientGone: the client has hung up.
        """
        if self._gone:
            raise ClientGone
        self._silent = False
        events, self._events, self._size = self._events, [], 0
        return events

    async def relay(self, outlet: Outlet, encode: Callable[[list[Event]], bytes]) -> None:
        """Write what comes, as `take` would give it, until the last event is written or the outlet is not ready.

        Raises:
            ClientGone: the client has hung up.
            Exception: what `encode` raises.
        """
        if self.over:
            return
        relay = self._relay = _Relay(self, outlet, encode)
        try:
            if self._news:
                relay.wake()
            await relay.stopped
        finally:
            self._relay = None

    def _wake(self) -> None:
        if self._relay is not None:
            self._relay.wake()
        elif self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class _Relay:
    """Empties an inbox into an outlet, once a turn of the loop, so that what comes together is written in one piece."""

    def __init__(self, inbox: Inbox, outlet: Outlet, encode: Callable[[list[Event]], bytes]) -> None:
        self._inbox = inbox
        self._outlet = outlet
        self._encode = encode
        self._loop = asyncio.get_running_loop()
        # What is logged while a piece is encoded belongs to the request, whoever has brought the events.
        self._context = contextvars.copy_context()
        self._due = False
        self.stopped: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> None:
        """There is something to be written."""
        if not self._due:
            self._due = True
            self._loop.call_soon(self._write, context=self._context)

    def _write(self) -> None:
        self._due = False
        if self.stopped.done():
            return
        try:
            if not self._outlet.ready:
                self.stopped.set_result(None)
            elif piece := self._encode(self._inbox.taken()):
                self._outlet.write(piece)
        except Exception as error:  # noqa: BLE001 - raised where the stream is awaited
            self.stopped.set_exception(error)
        if self._inbox.over and not self.stopped.done():
            self.stopped.set_result(None)


def _length(event: Event) -> int:
    match event:
        case TextDelta() | ThinkingDelta():
            return len(event.text) + _EVENT * len(event.tokens)
        case ToolCallDelta():
            return len(event.arguments)
        case _:
            return 0


def _merged(earlier: Event, later: Event) -> Event | None:
    """Both as one event; None where they say different things, or too much."""
    if _length(earlier) + _length(later) > _MERGED:
        return None
    match earlier, later:
        case TextDelta(choice, text, tokens), TextDelta() if choice == later.choice:
            return TextDelta(choice, text + later.text, tokens + later.tokens, later.count)
        case ThinkingDelta(choice, text, tokens), ThinkingDelta() if choice == later.choice:
            return ThinkingDelta(choice, text + later.text, tokens + later.tokens, later.count)
        case ToolCallDelta(choice, index, id, name, arguments), ToolCallDelta(id=None):
            same = (choice, index) == (later.choice, later.index)
            joined = arguments + later.arguments
            return ToolCallDelta(choice, index, id, name, joined, later.count) if same else None
        case _:
            return None

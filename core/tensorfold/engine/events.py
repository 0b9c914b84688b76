"""From the engine thread to the event loop: one wake-up a round for all streams, and queues that merge what waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tensorfold.ir import Event, Failed, Finished, Progress, Stopped, TextDelta, ThinkingDelta, TokenInfo, ToolCallDelta

__all__ = ["LocalStream", "Postbox"]

_LAST = (Finished, Failed)


class Postbox:
    """Carries events to the streams of one event loop. `post` and `flush` belong to the engine thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._written: list[tuple[LocalStream, Event]] = []
        """By the engine thread, which has more to do before anybody may know."""
        self._mail: deque[tuple[LocalStream, Event]] = deque()
        self._called = False
        """Whether the loop has been called and has not come yet. Set by the engine thread, unset by the loop."""

    def post(self, stream: LocalStream, event: Event) -> None:
        """Put an event in the box; it leaves with the next flush, and not before: by then the gauges tell of it."""
        self._written.append((stream, event))

    def flush(self) -> None:
        """Wake the loop once, if there is anything. A loop that is closed has no readers left."""
        if not self._written:
            return
        self._mail.extend(self._written)
        self._written.clear()
        if self._called:
            return
        self._called = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            self._called = False
            self._mail.clear()

    def _deliver(self) -> None:
        # In this order: what is flushed from here on is delivered now, or calls again.
        self._called = False
        # No more than there is now, or an engine that is faster than the loop would keep it from all else.
        for _ in range(len(self._mail)):
            stream, event = self._mail.popleft()
            stream.push(event)


@dataclass(slots=True)
class _Text:
    """Text deltas of one choice that nobody has read yet."""

    first: TextDelta | ThinkingDelta
    parts: list[str]
    tokens: list[TokenInfo]
    count: int | None

    def takes(self, event: Event) -> bool:
        """Whether the event only goes on where this ends."""
        match event:
            case TextDelta(choice) | ThinkingDelta(choice):
                return type(event) is type(self.first) and choice == self.first.choice
            case _:
                return False

    def add(self, event: Event) -> None:
        """Go on with it."""
        if isinstance(event, TextDelta | ThinkingDelta):
            self.parts.append(event.text)
            self.tokens.extend(event.tokens)
            self.count = event.count

    def event(self) -> Event:
        """All of it as one delta."""
        return type(self.first)(self.first.choice, "".join(self.parts), tuple(self.tokens), self.count)


@dataclass(slots=True)
class _Call:
    """Deltas of one tool call that nobody has read yet."""

    first: ToolCallDelta
    arguments: list[str]
    count: int | None

    def takes(self, event: Event) -> bool:
        """Whether the event only adds arguments to this call."""
        return (
            isinstance(event, ToolCallDelta)
            and (event.choice, event.index) == (self.first.choice, self.first.index)
            and event.name is None
        )

    def add(self, event: Event) -> None:
        """Go on with it."""
        if isinstance(event, ToolCallDelta):
            self.arguments.append(event.arguments)
            self.count = event.count

    def event(self) -> Event:
        """All of it as one delta."""
        first = self.first
        return ToolCallDelta(first.choice, first.index, first.id, first.name, "".join(self.arguments), self.count)


@dataclass(slots=True)
class _Single:
    """An event that stands for itself; a newer `Progress` replaces an older one."""

    first: Event

    def takes(self, event: Event) -> bool:
        """Only progress makes older progress worthless."""
        return isinstance(self.first, Progress) and isinstance(event, Progress)

    def add(self, event: Event) -> None:
        """Replace it."""
        self.first = event

    def event(self) -> Event:
        """The event."""
        return self.first


_Entry: TypeAlias = _Text | _Call | _Single


def _entry(event: Event) -> _Entry:
    match event:
        case TextDelta(_, text, tokens) | ThinkingDelta(_, text, tokens):
            return _Text(event, [text], list(tokens), event.count)
        case ToolCallDelta():
            return _Call(event, [event.arguments], event.count)
        case _:
            return _Single(event)


def _choice(event: Event) -> int:
    """Whose order an event belongs to; -1: the request's own."""
    match event:
        case TextDelta(choice) | ThinkingDelta(choice) | ToolCallDelta(choice) | Stopped(choice):
            return choice
        case _:
            return -1


@dataclass(slots=True)
class _Backlog:
    """Events that wait for a reader. Memory is bounded by the reply itself: what waits is merged, not queued up."""

    entries: deque[_Entry] = field(default_factory=deque["_Entry"])
    last: dict[int, _Entry] = field(default_factory=dict[int, "_Entry"])
    """For each choice, its newest entry: order holds within a choice, not between choices."""

    def push(self, event: Event) -> None:
        """One more event."""
        choice = _choice(event)
        entry = self.last.get(choice)
        if entry is not None and entry.takes(event):
            entry.add(event)
            return
        entry = _entry(event)
        self.entries.append(entry)
        self.last[choice] = entry

    def pop(self) -> Event:
        """The oldest."""
        entry = self.entries.popleft()
        for choice in [choice for choice, last in self.last.items() if last is entry]:
            del self.last[choice]
        return entry.event()


class LocalStream:
    """Implements `contracts.engine.EventStream` and `PushesEvents` on one event loop. One reader."""

    def __init__(self, postbox: Postbox, on_cancel: Callable[[], None], on_end: Callable[[LocalStream], None]) -> None:
        """`on_cancel` wakes the engine; `on_end` is told on the loop when the last event has arrived."""
        self.cancelled = False
        """Nobody waits any more. Written by the loop, read by the engine thread."""
        self.postbox = postbox
        self.scores: Mapping[tuple[int, ...], Sequence[float]] = {}
        """What a request for scores has come to; complete when its last event is there."""
        self.top: int | None = None
        """The likeliest token behind its prompt."""
        self._on_cancel = on_cancel
        self._on_end = on_end
        self._backlog = _Backlog()
        self._complete = False
        self._reader: asyncio.Future[None] | None = None
        self._sink: Callable[[Event], None] | None = None

    # ---- the engine's side ---------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Send an event with the round's other ones."""
        self.postbox.post(self, event)

    # ---- the loop's side -----------------------------------------------------------------------------------

    def push(self, event: Event) -> None:
        """An event has arrived. What comes after the last one is dropped."""
        if self._complete:
            return
        if isinstance(event, _LAST):
            self._complete = True
            self._on_end(self)
        if self._sink is not None:
            self._sink(event)
            return
        self._backlog.push(event)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def __aiter__(self) -> LocalStream:
        return self

    async def __anext__(self) -> Event:
        while not self._backlog.entries:
            if self._complete:
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        return self._backlog.pop()

    def attach(self, sink: Callable[[Event], None]) -> None:
        """Hand over what waits, and each further event when it comes."""
        while self._backlog.entries:
            sink(self._backlog.pop())
        self._sink = sink

    def cancel(self) -> None:
        """The request ends at the next round."""
        if not (self.cancelled or self._complete):
            self.cancelled = True
            self._on_cancel()

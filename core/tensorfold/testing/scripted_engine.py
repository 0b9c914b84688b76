"""An engine that replays given events: no model, no thread, no tokens. For tests of dialects and of the HTTP front."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeAlias

from tensorfold.contracts.engine import EngineStatus, ModelInfo, PreparedPrompt
from tensorfold.errors import GenerationFailed, Rejected, RequestError
from tensorfold.ir import (
    Chat,
    Event,
    Failed,
    Finished,
    Prompt,
    Queued,
    Request,
    Stopped,
    Text,
    TextPrompt,
    Timings,
    TokensPrompt,
    Usage,
)

__all__ = ["Script", "ScriptItem", "ScriptedEngine", "ScriptedStream"]

ScriptItem: TypeAlias = Event | RequestError | float
"""An event to send; an error (raised by `submit` before the first event, a `Failed` event after it); or seconds to wait."""

Script: TypeAlias = Callable[[Request], Iterable[ScriptItem]]
"""What the engine does with a request. A generator is read as the stream is, so that it may look at the clock or a flag."""


class Prompts(Protocol):
    """Renders and tokenizes (`chat.prompt.PromptBuilder`)."""

    def prepare(self, prompt: Prompt) -> PreparedPrompt: ...


class ScriptedEngine:
    """Implements `contracts.engine.Engine`. `Queued` is put in front when a script does not begin with it."""

    def __init__(self, model: ModelInfo, script: Script, prompts: Prompts | None = None) -> None:
        """`prompts` renders and tokenizes; without it a prompt has one token a byte of its text."""
        self.model = model
        """For the application under test."""
        self._prompts = prompts
        self.requests: list[Request] = []
        """Every request that was submitted, in order."""
        self.cancelled: list[str] = []
        """Ids of the requests whose stream was cancelled before its end, in order."""
        self.problem: str | None = None
        """Set it to make `status` unhealthy."""
        self._script = script
        self._open: set[ScriptedStream] = set()
        self._closing = False

    async def submit(self, request: Request) -> ScriptedStream:
        """Run the script up to its first event."""
        if self._closing:
            raise Rejected("the server is shutting down")
        self.requests.append(request)
        items = iter(self._script(request))
        first: Event = Queued(len((await self.prepare(request)).ids))
        for item in items:
            match item:
                case RequestError():
                    raise item
                case float() | int():
                    await asyncio.sleep(item)
                case Queued():
                    first = item
                    break
                case _:
                    items = _chain(item, items)
                    break
        stream = ScriptedStream(self, request, first, items)
        self._open.add(stream)
        return stream

    async def prepare(self, request: Request) -> PreparedPrompt:
        """The prompt's ids and its text."""
        if self._prompts is not None:
            return self._prompts.prepare(request.prompt)
        match request.prompt:
            case TokensPrompt(ids):
                return PreparedPrompt(ids)
            case _:
                ids = _prompt_ids(request)
                return PreparedPrompt(ids, bytes(ids).decode(errors="replace"))

    def status(self) -> EngineStatus:
        """Open streams count as running."""
        return EngineStatus(healthy=self.problem is None, problem=self.problem, running=len(self._open))

    async def close(self, grace: float) -> None:
        """Wait for the open streams, then abort them."""
        self._closing = True
        loop = asyncio.get_running_loop()
        end = loop.time() + grace
        while self._open and loop.time() < end:
            await asyncio.sleep(min(0.01, grace))
        for stream in tuple(self._open):
            stream.abort()

    def ended(self, stream: ScriptedStream, cancelled: bool) -> None:
        """A stream has given its last event, or nobody reads it any more."""
        if stream in self._open:
            self._open.discard(stream)
            if cancelled:
                self.cancelled.append(stream.request.id)


class ScriptedStream:
    """Implements `contracts.engine.EventStream`. It is read lazily: an item of the script is taken when it is asked for."""

    def __init__(self, engine: ScriptedEngine, request: Request, first: Event, items: Iterator[ScriptItem]) -> None:
        self.request = request
        """What was asked."""
        self._engine = engine
        self._items = _chain(first, items)
        self._aborted = asyncio.Event()
        self._open = set(range(request.choices))
        self._over = False

    def __aiter__(self) -> ScriptedStream:
        return self

    async def __anext__(self) -> Event:
        if self._over:
            raise StopAsyncIteration
        event = await self._next()
        match event:
            case Stopped(choice):
                self._open.discard(choice)
            case Finished() | Failed():
                self._over = True
                self._engine.ended(self, cancelled=False)
            case _:
                pass
        return event

    async def _next(self) -> Event:
        """The script's next event, or the end of an aborted stream."""
        while not self._aborted.is_set():
            match next(self._items, None):
                case None:
                    return Failed.of(GenerationFailed("the script has ended without Finished or Failed"))
                case RequestError() as error:
                    return Failed.of(error)
                case float() | int() as seconds:
                    await self._sleep(seconds)
                case event:
                    return event
        if self._open:
            return Stopped(self._open.pop(), "abort")
        return Finished(Usage(0, 0), Timings(), ("",) * self.request.choices)

    async def _sleep(self, seconds: float) -> None:
        """Wait, unless the stream is aborted."""
        try:
            await asyncio.wait_for(self._aborted.wait(), seconds)
        except TimeoutError:
            return

    def cancel(self) -> None:
        """Nobody waits any more: what is still read is `Stopped` with `abort`, and `Finished`."""
        self._engine.ended(self, cancelled=True)
        self._aborted.set()

    def abort(self) -> None:
        """The engine closes."""
        self._aborted.set()


def _chain(first: ScriptItem, rest: Iterator[ScriptItem]) -> Iterator[ScriptItem]:
    yield first
    yield from rest


def _prompt_ids(request: Request) -> tuple[int, ...]:
    """One id a byte of the prompt's text; of a chat, its text parts end to end."""
    match request.prompt:
        case TokensPrompt(ids):
            return ids
        case TextPrompt(text):
            return tuple(text.encode(errors="replace"))
        case Chat(messages):
            parts = [part.text for message in messages for part in message.parts if isinstance(part, Text)]
            return tuple("".join(parts).encode(errors="replace"))

"""One request that the engine runs: its events, and how it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeAlias

import structlog

from tensorfold.contracts.engine import EventStream, PushesEvents
from tensorfold.contracts.observe import Outcome
from tensorfold.errors import GenerationFailed, RequestError
from tensorfold.ir import (
    Event,
    Failed,
    Finished,
    Request,
    Stopped,
    TextDelta,
    ThinkingDelta,
    Timings,
    ToolCallDelta,
    Usage,
)

__all__ = ["CLIENT_LEFT", "Delta", "Run"]

Delta: TypeAlias = TextDelta | ThinkingDelta | ToolCallDelta
_DELTAS = (TextDelta, ThinkingDelta, ToolCallDelta)

CLIENT_LEFT = 499
"""The status that logs and metrics give to a request whose client has hung up."""


class Run:
    """Reads one stream to its end, always to exactly one `Finished` or `Failed`, and remembers what observers ask for."""

    def __init__(self, request: Request, stream: EventStream, arrived: float) -> None:
        """`arrived`: when the HTTP request came, in `time.monotonic` seconds."""
        self.request = request
        self._stream = stream
        self._arrived = arrived
        self._cancelled = False
        self._ended = False
        self._first_token: float | None = None
        self._reason: str | None = None
        self._usage: Usage | None = None
        self._timings: Timings | None = None
        self._token_sha: tuple[str, ...] = ()
        self._status = 200

    def cancel(self) -> None:
        """Nobody waits for the reply any more; one that has ended stays what it is, for connections end later."""
        if not self._ended:
            self._cancelled = True
        self._stream.cancel()

    async def first(self) -> Event:
        """The first event, before which nothing is answered."""
        event = await self._next()
        self._note(event)
        return event

    async def pump(self, deliver: Callable[[Event], bool], put: Callable[[Delta], bool] | None = None) -> None:
        """Hand on every further event; a receiver that takes no more (False) ends the request with an error.

        `put` is what `deliver` does with a delta, if that is all it does.
        """
        if isinstance(self._stream, PushesEvents):
            await self._pushed(self._stream, deliver, put)
            return
        while not self._hand_on(await self._next(), deliver):
            pass

    async def _pushed(
        self, stream: PushesEvents, deliver: Callable[[Event], bool], put: Callable[[Delta], bool] | None
    ) -> None:
        ended = asyncio.get_running_loop().create_future()

        def take(event: Event) -> None:
            if ended.done():
                return
            # PERF: nearly all events are such, and would pass through five calls and as many objects of their own.
            if put is not None and isinstance(event, _DELTAS) and self._first_token is not None and put(event):
                return
            try:
                if self._hand_on(event, deliver):
                    ended.set_result(None)
            except Exception as error:  # noqa: BLE001 - raised where the request is awaited, not where others are served
                ended.set_exception(error)

        stream.attach(take)
        await ended

    def _hand_on(self, event: Event, deliver: Callable[[Event], bool]) -> bool:
        """Hand on one event; whether it is the last."""
        self._note(event)
        if not deliver(event) and not self._cancelled:
            self.cancel()
            event = Failed.of(GenerationFailed("the client reads too slowly: too much of its reply is waiting"))
            self._note(event)
            deliver(event)
        return isinstance(event, Finished | Failed)

    async def _next(self) -> Event:
        try:
            return await anext(self._stream)
        except StopAsyncIteration:
            problem = "the engine ended the stream without a result"
        except RequestError as error:
            return Failed.of(error)
        except Exception:  # noqa: BLE001 - an engine's fault ends this request alone
            structlog.get_logger().exception("an event stream failed")
            problem = "the engine failed this request"
        return Failed.of(GenerationFailed(problem))

    def _note(self, event: Event) -> None:
        match event:
            case TextDelta() | ThinkingDelta() | ToolCallDelta():
                if self._first_token is None:
                    self._first_token = time.monotonic() - self._arrived
            case Stopped():
                self._reason = self._reason or event.reason
            case Finished():
                self._ended = True
                self._usage, self._timings, self._token_sha = event.usage, event.timings, event.token_sha
            case Failed():
                self._ended = True
                self._status, self._reason = event.status, event.error_type
            case _:
                pass

    def outcome(self) -> Outcome:
        """How it ended."""
        return Outcome(
            status=CLIENT_LEFT if self._cancelled and self._status == 200 else self._status,
            reason=self._reason or "abort",
            usage=self._usage,
            timings=self._timings,
            seconds=time.monotonic() - self._arrived,
            first_token_seconds=self._first_token,
            token_sha=self._token_sha,
        )

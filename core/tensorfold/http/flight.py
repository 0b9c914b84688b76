"""One exchange in flight: its requests submitted, their events joined, the client's hang-up passed on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import structlog

from tensorfold.contracts.dialect import StreamEncoder
from tensorfold.contracts.engine import Engine
from tensorfold.contracts.observe import Outcome
from tensorfold.errors import RequestError
from tensorfold.http.audience import Audience
from tensorfold.http.connection import ClientGone
from tensorfold.http.inbox import Inbox
from tensorfold.http.internal import internal_error
from tensorfold.http.multiplex import Multiplexer
from tensorfold.http.outlet import Outlet
from tensorfold.http.run import Run
from tensorfold.http.settings import HttpSettings
from tensorfold.ir import Answer, Event, Failed, Finished, Request, fold

__all__ = ["Flight"]

_FAREWELL = 5.0
"""Seconds that the engine has to end a cancelled request, so that its tokens are counted."""


class Flight:
    """From submission to the last byte. `hang_up` may be called at any time; `close` always is."""

    def __init__(
        self, engine: Engine, audience: Audience, endpoint: str, arrived: float, settings: HttpSettings
    ) -> None:
        """`endpoint`: the route's path, for observers. `arrived`: in `time.monotonic` seconds."""
        self._engine = engine
        self._audience = audience
        self._endpoint = endpoint
        self._arrived = arrived
        self._settings = settings
        self._inbox = Inbox(settings.max_pending)
        self._runs: list[Run] = []
        self._pumps: list[asyncio.Task[None]] = []

    async def submit(self, requests: Sequence[Request]) -> None:
        """Submit all requests and wait for their first events, so that a refusal still has a status of its own.

        Raises:
            RequestError: one of them is refused; the others are cancelled by `close`.
            ClientGone: the client left meanwhile.
        """
        multiplexer = Multiplexer([request.choices for request in requests])
        for index, request in enumerate(requests):
            first = await self._submit(request)
            if isinstance(first, Failed):
                raise first.error()
            self._deliver(multiplexer, index, first)
        for index, run in enumerate(self._runs):
            self._pumps.append(asyncio.create_task(self._pump(multiplexer, index, run)))

    async def _submit(self, request: Request) -> Event:
        self._audience.started(request, self._endpoint)
        try:
            stream = await self._engine.submit(request)
        except Exception as error:
            status, reason = (error.status, error.type) if isinstance(error, RequestError) else (500, "server_error")
            seconds = time.monotonic() - self._arrived
            self._audience.ended(request, self._endpoint, Outcome(status, reason, None, None, seconds, None))
            raise
        run = Run(request, stream, self._arrived)
        self._runs.append(run)
        if self._inbox.gone:
            raise ClientGone
        return await run.first()

    async def _pump(self, multiplexer: Multiplexer, index: int, run: Run) -> None:
        try:
            # A lone request's choices keep their numbers, so that its deltas need nobody who joins them to others.
            put = self._inbox.put if len(self._runs) == 1 else None
            await run.pump(lambda event: self._deliver(multiplexer, index, event), put)
        finally:
            self._audience.ended(run.request, self._endpoint, run.outcome())

    def _deliver(self, multiplexer: Multiplexer, index: int, event: Event) -> bool:
        joint = multiplexer.feed(index, event)
        match joint:
            case None:
                return True
            case Finished():
                self._inbox.end(joint)
                return True
            case Failed():
                self._inbox.end(joint)
                self._cancel(all_but=index)
                return True
            case _:
                return self._inbox.put(joint)

    async def answer(self) -> Answer:
        """The whole answer.

        Raises:
            RequestError: the engine failed it.
            ClientGone: the client left.
        """
        events: list[Event] = []
        while not self._inbox.over:
            events += await self._inbox.take()
        return fold(events)

    async def stream(
        self, encoder: StreamEncoder, keep_alive: bytes, outlet: Outlet | None = None
    ) -> AsyncIterator[bytes]:
        """The encoded stream; what waits goes out in one piece. Ends early when the client leaves.

        Once the first piece has been sent, the further ones go through the outlet, if there is one and while it is ready.
        """
        heartbeat = _Heartbeat(self._inbox, self._settings.keep_alive_seconds)

        def encode(events: list[Event]) -> bytes:
            data = b"".join([encoder.feed(event) for event in events]) if events else keep_alive
            if data:
                heartbeat.beat()
            return data

        try:
            while not self._inbox.over:
                events = await self._inbox.take()
                if data := encode(events):
                    yield data
                if outlet is not None:
                    await self._inbox.relay(outlet, encode)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 (a dialect may raise anything, and it costs this request alone)
            yield self._broken(encoder, error)
        finally:
            heartbeat.stop()

    def _broken(self, encoder: StreamEncoder, error: Exception) -> bytes:
        """The end of a stream whose encoder has failed: its dialect's error, if it can still say that.

        Raises:
            Exception: it cannot, and the connection is cut, so that no client takes the reply for a whole one.
        """
        structlog.get_logger().error("a dialect failed to encode a stream", endpoint=self._endpoint, exc_info=error)
        self._cancel()
        return encoder.feed(Failed.of(internal_error()))

    def hang_up(self) -> None:
        """The client has gone: whoever waits here is told, and the engine ends the requests at its next round."""
        self._inbox.hang_up()
        self._cancel()

    def _cancel(self, all_but: int | None = None) -> None:
        for index, run in enumerate(self._runs):
            if index != all_but:
                run.cancel()

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """How the requests have ended, or stand."""
        return tuple(run.outcome() for run in self._runs)

    async def close(self) -> None:
        """The exchange is over. What the engine still runs is cancelled, and has a moment to report its end."""
        running = [pump for pump in self._pumps if not pump.done()]
        if running or len(self._pumps) < len(self._runs):
            self.hang_up()
        if len(self._pumps) < len(self._runs):  # refused or left before all were submitted
            for run in self._runs:
                self._audience.ended(run.request, self._endpoint, run.outcome())
        if running:
            _, late = await asyncio.wait(running, timeout=_FAREWELL)
            for pump in late:
                pump.cancel()


class _Heartbeat:
    """Wakes the reader when nothing has been written for a while."""

    def __init__(self, inbox: Inbox, seconds: float) -> None:
        self._inbox = inbox
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._timer = self._loop.call_later(seconds, self._look)

    def beat(self) -> None:
        """Something is being written. The timer stays as it is: one for each event would cost more than the event."""
        self._last = self._loop.time()

    def _look(self) -> None:
        due = self._last + self._seconds
        if due <= self._loop.time():
            self._inbox.silence()
            due = self._loop.time() + self._seconds
        self._timer = self._loop.call_at(due, self._look)

    def stop(self) -> None:
        self._timer.cancel()

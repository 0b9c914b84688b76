"""One exchange in flight: its requests submitted, their events joined, the client's hang-up passed on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import structlog

from tensorfold.contracts.dialect import StreamEncoder
from tensorfold.contracts.engine import CanCheck, Engine
from tensorfold.contracts.observe import Outcome
from tensorfold.errors import Rejected, RequestError
from tensorfold.http.audience import Audience
from tensorfold.http.connection import ClientGone
from tensorfold.http.inbox import Inbox
from tensorfold.http.internal import internal_error
from tensorfold.http.multiplex import Multiplexer
from tensorfold.http.outlet import Outlet
from tensorfold.http.run import CLIENT_LEFT, Run
from tensorfold.http.settings import HttpSettings
from tensorfold.ir import Answer, Event, Failed, Finished, Request, fold

__all__ = ["Flight"]

AT_ONCE = 16
"""Requests of one body that the engine has at a time; more of them could fill its queue alone."""
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
        self._pumps: dict[Run, asyncio.Task[None]] = {}
        self._waiting: Request | None = None
        """Observers know of it, and the engine has not taken it yet."""
        self._feeder: asyncio.Task[None] | None = None
        """Submits what has to wait for a turn."""

    async def submit(self, requests: Sequence[Request]) -> None:
        """Submit all requests and wait for their first events, so that a refusal still has a status of its own.

        Of many, the later ones wait until earlier ones have ended, and so do those for which the engine's queue has no
        room: what one body asks for is refused for want of room only if none of it finds any. What can never be run is
        refused now, also of those that wait.

        Raises:
            RequestError: one of them is refused; the others are cancelled by `close`.
            ClientGone: the client left meanwhile.
        """
        multiplexer = Multiplexer([request.choices for request in requests])
        lone = len(requests) == 1
        begun: list[Run] = []
        for index, request in enumerate(requests[:AT_ONCE]):
            try:
                begun.append(await self._begin(multiplexer, index, request))
            except Rejected as error:
                if not begun:
                    self._refused(request, error)
                    raise
                break
        for index, run in enumerate(begun):
            self._pumps[run] = asyncio.create_task(self._pump(multiplexer, index, run, lone=lone))
        if len(begun) < len(requests):
            await self._check(requests[len(begun) :])
            self._feeder = asyncio.create_task(self._feed(multiplexer, len(begun), requests[len(begun) :]))

    async def _check(self, requests: Sequence[Request]) -> None:
        """Look at what will wait, one after the other, as long as the engine finds time for it.

        Raises:
            RequestError: one of them can never be run.
            ClientGone: the client left meanwhile.
        """
        if not isinstance(self._engine, CanCheck):
            return
        for request in requests:
            try:
                await self._engine.check(request)
            except Rejected:
                return  # each is looked at again when its turn comes
            except Exception as error:
                self._refused(request, error)
                raise
            if self._inbox.gone:
                raise ClientGone

    async def _feed(self, multiplexer: Multiplexer, start: int, requests: Sequence[Request]) -> None:
        """Submit the rest, each when there is a turn for it."""
        for index, request in enumerate(requests, start):
            try:
                run = await self._in_turn(multiplexer, index, request)
            except ClientGone:
                return
            except Exception as error:  # noqa: BLE001 - an engine's fault ends this exchange alone
                self._deliver(multiplexer, index, _failed(error))
                return
            self._pumps[run] = asyncio.create_task(self._pump(multiplexer, index, run))

    async def _in_turn(self, multiplexer: Multiplexer, index: int, request: Request) -> Run:
        """Begin a request once few enough others of this body run, and the queue has room.

        Raises:
            RequestError: it is refused, and not for want of room that others of this body take.
            ClientGone: the client has left.
        """
        while True:
            running = [pump for pump in self._pumps.values() if not pump.done()]
            if len(running) < AT_ONCE:
                try:
                    return await self._begin(multiplexer, index, request)
                except Rejected as error:
                    if not running:
                        self._refused(request, error)
                        raise
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)

    async def _begin(self, multiplexer: Multiplexer, index: int, request: Request) -> Run:
        run, first = await self._submit(request)
        if isinstance(first, Failed):
            raise first.error()
        self._deliver(multiplexer, index, first)
        return run

    async def _submit(self, request: Request) -> tuple[Run, Event]:
        if self._waiting is not request:
            self._audience.started(request, self._endpoint)
            self._waiting = request
        try:
            stream = await self._engine.submit(request)
        except Rejected:
            raise  # it may be tried again
        except Exception as error:
            self._refused(request, error)
            raise
        self._waiting = None
        run = Run(request, stream, self._arrived)
        self._runs.append(run)
        if self._inbox.gone:
            raise ClientGone
        return run, await run.first()

    def _refused(self, request: Request, error: Exception | None) -> None:
        """Observers are told that the engine has not taken a request; without an error, that the client has left."""
        if self._waiting is request:
            self._waiting = None
        else:
            self._audience.started(request, self._endpoint)
        match error:
            case None:
                status, reason = CLIENT_LEFT, "abort"
            case RequestError():
                status, reason = error.status, error.type
            case _:
                status, reason = 500, "server_error"
        seconds = time.monotonic() - self._arrived
        self._audience.ended(request, self._endpoint, Outcome(status, reason, None, None, seconds, None))

    async def _pump(self, multiplexer: Multiplexer, index: int, run: Run, *, lone: bool = False) -> None:
        try:
            # A lone request's choices keep their numbers, so that its deltas need nobody who joins them to others.
            put = self._inbox.put if lone else None
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
                self._submit_no_more()
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
        self._submit_no_more()
        self._cancel()

    def _submit_no_more(self) -> None:
        if self._feeder is not None:
            self._feeder.cancel()

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
        self._submit_no_more()
        if self._feeder is not None:
            await asyncio.wait([self._feeder])
        if self._waiting is not None:
            self._refused(self._waiting, None)
        running = [pump for pump in self._pumps.values() if not pump.done()]
        unread = [run for run in self._runs if run not in self._pumps]
        if running or unread:
            self.hang_up()
        for run in unread:  # refused or left before all were submitted
            self._audience.ended(run.request, self._endpoint, run.outcome())
        if running:
            _, late = await asyncio.wait(running, timeout=_FAREWELL)
            for pump in late:
                pump.cancel()


def _failed(error: Exception) -> Failed:
    """The event that tells why a request was not begun."""
    if isinstance(error, RequestError):
        return Failed.of(error)
    structlog.get_logger().error("an engine failed to take a request", exc_info=error)
    return Failed.of(internal_error())


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

"""The requests in the engine, and the ways in which one ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType

import structlog

from tensorfold.engine.active import ActiveRequest
from tensorfold.engine.scheduler import Scheduler
from tensorfold.engine.sharing import Sharing
from tensorfold.errors import GenerationFailed, OutOfPages, RequestError
from tensorfold.ir import Failed

__all__ = ["Failure", "Roster", "Totals"]


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that could not go on, as health tells of it."""

    at: int
    """Seconds since the epoch."""
    doing: str
    """What the engine was doing."""
    error: str
    """The kind of error; its words are in the log."""


@dataclass(slots=True)
class Totals:
    """Counts since the start. Written by the engine thread, read by anybody."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """These two, drafts and seconds below are those of ended requests; all others count as things happen."""
    begun_tokens: int = 0
    """Prompt tokens of requests that have begun."""
    reused_tokens: int = 0
    """Of those, the ones that were kept."""
    computed_tokens: int = 0
    """Prompt tokens computed, those of replays included."""
    completion_tokens: int = 0
    longest: int = 0
    """Positions of the longest sequence so far."""
    drafted: int = 0
    accepted: int = 0
    drafts: int = 0
    """Rows of guesses that were verified, one for each reply in a round that offered some."""
    rounds: int = 0
    chunks: int = 0
    failures: int = 0
    last_failure: Failure | None = None
    """The latest of them."""
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    chunk_seconds: float = 0.0
    """Time of the chunks of prompts."""
    round_seconds: float = 0.0
    """Time of the rounds of replies, however many shared one."""


class Guarded:
    """A block whose failure belongs to some requests; see `Roster.guarded`."""

    __slots__ = ("_actives", "_doing", "_roster")

    def __init__(self, roster: Roster, doing: str, actives: Iterable[ActiveRequest]) -> None:
        self._roster = roster
        self._doing = doing
        self._actives = actives

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, OutOfPages):
            return False
        self._roster.blame(self._actives, error, self._doing)
        return True


class Roster:
    """All requests that have not ended. Every request leaves through exactly one of `finish`, `fail` and `abort`."""

    def __init__(self, scheduler: Scheduler, sharing: Sharing, totals: Totals, clock: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._sharing = sharing
        self._totals = totals
        self._clock = clock
        self._active: dict[ActiveRequest, None] = {}

    @property
    def active(self) -> tuple[ActiveRequest, ...]:
        """In the order in which they came."""
        return tuple(self._active)

    def enter(self, active: ActiveRequest) -> None:
        """A request was taken from the inbox."""
        self._sharing.enter(active, self._active)
        self._active[active] = None
        self._totals.requests += 1
        self._scheduler.add(active)

    def finish(self, active: ActiveRequest) -> None:
        """Every choice has stopped."""
        finished = active.finished(self._clock())
        self._leave(active)
        self._totals.prompt_tokens += finished.usage.prompt_tokens
        self._totals.cached_tokens += finished.usage.cached_tokens
        self._totals.drafted += finished.usage.drafted_tokens
        self._totals.accepted += finished.usage.accepted_tokens
        self._totals.drafts += sum(entry.sequence.drafts for entry in active.entries)
        self._totals.prefill_seconds += finished.timings.prefill
        self._totals.decode_seconds += finished.timings.decode
        active.post(finished)

    def fail(self, active: ActiveRequest, error: Exception, doing: str) -> None:
        """The request cannot go on; others do. An error that is not meant for the caller is logged, not told."""
        if active.ended:
            return
        self._totals.failures += 1
        self._totals.last_failure = Failure(int(time.time()), doing, type(error).__name__)
        if isinstance(error, RequestError):
            structlog.get_logger().warning(
                "a request failed", request=active.job.request.id, doing=doing, reason=error.message
            )
        else:
            structlog.get_logger().error("a request failed", request=active.job.request.id, doing=doing, exc_info=error)
            error = GenerationFailed(f"the engine failed this request while {doing} ({type(error).__name__})")
        self._leave(active)
        active.post(Failed.of(error))

    def guarded(self, doing: str, actives: Iterable[ActiveRequest]) -> Guarded:
        """What goes wrong inside, in a model, a backend or a plugin, ends these requests and nothing else.

        `OutOfPages` passes: nothing has gone wrong then, and room has to be made.
        """
        return Guarded(self, doing, actives)

    def blame(self, actives: Iterable[ActiveRequest], error: Exception, doing: str) -> None:
        """End these requests by an error, as `guarded` does.

        PERF: in an `except` this costs nothing as long as nothing fails, where a guarded block costs half a microsecond.

        Raises:
            OutOfPages: it was that, which ends nobody.
        """
        if isinstance(error, OutOfPages):
            raise error
        # A plugin may raise anything; `fail` logs it.
        for active in actives:
            self.fail(active, error, doing)

    def abort(self, active: ActiveRequest) -> None:
        """Nobody waits for the rest."""
        with self.guarded("ending its text", [active]):
            for entry in active.entries:
                if entry.sequence.stopped is None:
                    active.post(*entry.sequence.stop("abort"))
        if not active.ended:
            self.finish(active)

    def _leave(self, active: ActiveRequest) -> None:
        active.ended = True
        self._active.pop(active, None)
        self._sharing.leave(active)
        for entry in active.entries:
            self._scheduler.remove(entry)

"""The engine thread: takes requests, runs turns, sends events; the only one that touches the Runner."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import structlog

from tensorfold.compute.runner import Memory, Runner
from tensorfold.contracts.policy import SchedulerPolicy
from tensorfold.engine.active import ActiveRequest
from tensorfold.engine.capacity import Capacity
from tensorfold.engine.depth import Depth
from tensorfold.engine.drafts import Chances
from tensorfold.engine.events import LocalStream, Postbox
from tensorfold.engine.heads import DraftHead
from tensorfold.engine.job import Job
from tensorfold.engine.kept import PrefixCache, ShelfGauges
from tensorfold.engine.lanes import Lanes
from tensorfold.engine.prefill import Prefill
from tensorfold.engine.roster import Roster, Totals
from tensorfold.engine.rounds import Rounds
from tensorfold.engine.scheduler import ChunkTurn, RowsTurn, Scheduler, Turn
from tensorfold.engine.settings import EngineSettings
from tensorfold.engine.sharing import Sharing
from tensorfold.engine.spill import SpillShelf
from tensorfold.engine.steps import Steps
from tensorfold.errors import GenerationFailed
from tensorfold.ir import Failed

__all__ = ["EngineLoop", "Gauges", "Submission"]


READING = 0.02
"""Seconds after which gauges are read again while nobody comes or goes. PERF: a reading takes as long as a small model's
token needs outside the model."""


@dataclass(frozen=True, slots=True, eq=False)
class Submission:
    """A request on its way into the engine."""

    job: Job
    stream: LocalStream
    arrived: float
    """Monotonic seconds."""


@dataclass(frozen=True, slots=True)
class _Wake:
    """A stream was cancelled."""


@dataclass(frozen=True, slots=True)
class _Stop:
    """Abort everything and end."""


_Message: TypeAlias = Submission | _Wake | _Stop


@dataclass(frozen=True, slots=True)
class Gauges:
    """The engine after one of its last turns."""

    requests: int = 0
    """That hold a slot."""
    decoding: int = 0
    """Choices that generate."""
    prefilling: int = 0
    """Choices whose prompt is being computed."""
    memory: Memory | None = None
    prefixes: int = 0
    """Kept prefixes."""
    prefix_bytes: int = 0
    """Device memory that they hold."""
    prefix_hits: int = 0
    """Prompts so far that began from one."""
    prefix_evictions: int = 0
    """Kept prefixes so far that were given up."""
    shelf: ShelfGauges | None = None
    """The kept prompts on disk; None: there is no such place."""


@dataclass(frozen=True, slots=True)
class _Work:
    """A turn that is being run."""

    turn: Turn
    since: float
    """Monotonic seconds."""


class EngineLoop:
    """Owns the Runner. `submit`, `wake` and `stop` may be called from any thread and never block."""

    def __init__(
        self,
        runner: Runner[Any],
        policy: SchedulerPolicy,
        settings: EngineSettings,
        depth: Depth,
        clock: Callable[[], float],
    ) -> None:
        self.totals = Totals()
        self.gauges = Gauges(memory=runner.memory())
        """Replaced as a whole, so that it can be read without a lock: when a request or a kept prefix comes or goes, else
        after a while."""
        self.problem: str | None = None
        """Why the thread has ended though nobody asked it to."""
        self._runner = runner
        self._settings = settings
        self._clock = clock
        self._prefixes = PrefixCache(runner, settings.prefix_bytes, settings.prefix_copies, _shelf(runner, settings))
        self._lanes = Lanes(runner, Capacity(runner, settings.growth), self._prefixes)
        sharing = Sharing(self._prefixes)
        self._scheduler = Scheduler(self._lanes, sharing, policy, settings.decode_share, most=settings.rows)
        self._roster = Roster(self._scheduler, sharing, self.totals, clock)
        head = DraftHead(runner, settings.head_depth)
        steps = Steps(runner, self._lanes, self._prefixes, self._scheduler, self._roster, head, self.totals, clock)
        self._prefill = Prefill(steps)
        self._rounds = Rounds(steps, depth, settings.rows)
        self._chances = Chances()
        self._inbox: SimpleQueue[_Message] = SimpleQueue()
        self._postboxes: dict[Postbox, None] = {}
        self._number = 0
        self._left = False
        """Whether a stream was cancelled since the last turn."""
        self._deadline = math.inf
        """The next one, in seconds since the epoch."""
        self._work: _Work | None = None
        self._counted: tuple[int, ...] = ()
        """What the gauges count, when they were last read."""
        self._next_reading = 0.0
        """When they are read again though none of that has changed, in monotonic seconds."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tensorfold-engine", daemon=True)

    # ---- from any thread -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to run."""
        self._thread.start()

    def submit(self, submission: Submission) -> bool:
        """Hand a request over; False when the thread has ended and nobody will take it."""
        self._inbox.put(submission)
        return not self._over.is_set()

    def wake(self) -> None:
        """A stream was cancelled: see to it, even when nothing else is to do."""
        self._inbox.put(_Wake())

    def stop(self) -> None:
        """Abort every request at the next turn, close the runner and end the thread (or never begin)."""
        self._inbox.put(_Stop())
        if self._thread.ident is None:
            self.start()

    @property
    def over(self) -> bool:
        """Whether the thread has ended."""
        return self._over.is_set()

    def join(self) -> None:
        """Wait until the thread is gone; at once when `over`."""
        self._thread.join()

    def stuck(self) -> str | None:
        """What has been running for longer than it ever should, or None."""
        work = self._work
        if work is None:
            return None
        seconds = self._clock() - work.since
        match work.turn:
            case ChunkTurn() if seconds > self._settings.chunk_limit:
                return f"a prompt's chunk has been running for {seconds:.0f} s"
            case RowsTurn() if seconds > self._settings.round_limit:
                return f"a round of replies has been running for {seconds:.0f} s"
            case _:
                return None

    @property
    def preemptions(self) -> int:
        """Slots taken away so far."""
        return self._scheduler.preemptions

    @property
    def yields(self) -> int:
        """Lanes given up to a later request so far."""
        return self._scheduler.yields

    @property
    def lanes_problem(self) -> str | None:
        """Set when the device could not take a slot back."""
        return self._lanes.problem

    # ---- the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._take():
                self._turn()
                self._publish()
        except BaseException as error:  # noqa: BLE001 (whatever ended the thread is told by health)
            self.problem = f"the engine thread has ended: {type(error).__name__}: {error}"
            structlog.get_logger().critical("the engine thread has ended", exc_info=error)
        finally:
            # Set before the inbox is emptied for the last time: a submission comes either before it, or sees it.
            self._over.set()
            self._end()

    def _take(self) -> bool:
        """Empty the inbox, waiting for something when nothing is to do; False: stop."""
        waits = not self._scheduler.busy
        while True:
            try:
                message = self._inbox.get(block=waits)
            except Empty:
                return True
            waits = False
            match message:
                case Submission():
                    self._enter(message)
                case _Stop():
                    return False
                case _Wake():
                    self._left = True

    def _enter(self, submission: Submission) -> None:
        self._postboxes[submission.stream.postbox] = None
        self._number += 1
        try:
            active = ActiveRequest(self._number, submission.job, submission.stream, submission.arrived, self._chances)
        except Exception as error:  # noqa: BLE001 (a plugin may raise anything)
            structlog.get_logger().error("a request cannot begin", request=submission.job.request.id, exc_info=error)
            reason = f"the engine failed this request before it began ({type(error).__name__})"
            submission.stream.post(Failed.of(GenerationFailed(reason)))
        else:
            self._roster.enter(active)
            self._deadline = min(self._deadline, _due(active))

    def _turn(self) -> None:
        """Drop those who left, then run one step. What fails here belongs to no single request, and ends them all."""
        try:
            self._sweep()
            turn = self._scheduler.next(self._clock())
            if turn is None:
                self._unblock()
            else:
                self._execute(turn)
        except Exception as error:  # noqa: BLE001 (the last line of defence)
            structlog.get_logger().exception("a turn failed outside any request: all are ended, the engine goes on")
            for active in self._roster.active:
                self._roster.fail(active, error, "scheduling")

    def _sweep(self) -> None:
        """Drop those who left, and those whose time is over.

        PERF: a thousand replies are looked through only when there is a reason to.
        """
        now = time.time()
        if not self._left and now <= self._deadline:
            return
        self._left = False
        for active in self._roster.active:
            if active.stream.cancelled or now > _due(active):
                self._roster.abort(active)
        self._deadline = min(map(_due, self._roster.active), default=math.inf)

    def _execute(self, turn: Turn) -> None:
        self._work = _Work(turn, self._clock())
        try:
            match turn:
                case ChunkTurn(entry):
                    self._prefill.chunk(entry)
                    seconds = self._clock() - self._work.since
                    self.totals.chunk_seconds += seconds
                    self._scheduler.ran_chunk(seconds)
                case RowsTurn(entries):
                    self._rounds.rows(entries)
                    seconds = self._clock() - self._work.since
                    self.totals.round_seconds += seconds
                    self._scheduler.ran_rows(seconds)
        finally:
            self._work = None

    def _unblock(self) -> None:
        """Nobody holds a slot, and yet there is no room for who is first: give up what is kept, or else the request."""
        if not self._scheduler.waiting or self._prefixes.free_some() or self._scheduler.forget_kept():
            return
        active = self._scheduler.waiting[0].active
        self._roster.fail(
            active,
            GenerationFailed(
                f"there is no room for this request of {len(active.job.ids)} prompt tokens though nothing else runs:"
                " shorten it, or start the server with a smaller --context"
            ),
            "waiting for room",
        )

    def _publish(self) -> None:
        """One wake-up of each event loop for all that this turn has to say."""
        scheduler = self._scheduler
        counted = (scheduler.requests, len(scheduler.running), len(scheduler.prefilling), len(self._prefixes))
        now = self._clock()
        if counted != self._counted or now >= self._next_reading:
            self._counted, self._next_reading = counted, now + READING
            self._read_gauges()
        for postbox in self._postboxes:
            postbox.flush()

    def _read_gauges(self) -> None:
        scheduler = self._scheduler
        self.gauges = Gauges(
            requests=scheduler.requests,
            decoding=len(scheduler.running),
            prefilling=len(scheduler.prefilling),
            memory=self._runner.memory(),
            prefixes=len(self._prefixes),
            prefix_bytes=self._prefixes.bytes,
            prefix_hits=self._prefixes.hits,
            prefix_evictions=self._prefixes.evictions,
            shelf=self._prefixes.shelf,
        )

    def _end(self) -> None:
        """Nobody is left without a last event, and the device is free. Never raises."""
        try:
            for active in self._roster.active:
                if self.problem is None:
                    self._roster.abort(active)
                else:
                    self._roster.fail(active, GenerationFailed("the engine has stopped"), "stopping")
            self._refuse_the_rest()
            self._prefixes.close()
            self._publish()
            self._runner.close()
        except Exception as error:  # noqa: BLE001 (a device may raise anything; there is nobody left to be told)
            structlog.get_logger().error("the engine did not end in order", exc_info=error)

    def _refuse_the_rest(self) -> None:
        """What came into the inbox behind the stop."""
        while True:
            try:
                message = self._inbox.get_nowait()
            except Empty:
                return
            if isinstance(message, Submission):
                self._postboxes[message.stream.postbox] = None
                message.stream.post(Failed.of(GenerationFailed("the engine has stopped")))


def _due(active: ActiveRequest) -> float:
    """When a request has to be over, in seconds since the epoch."""
    deadline = active.job.request.deadline
    return math.inf if deadline is None else deadline


def _shelf(runner: Runner[Any], settings: EngineSettings) -> SpillShelf | None:
    if settings.spill_folder is None or not settings.spill_bytes:
        return None
    return SpillShelf(settings.spill_folder, settings.spill_bytes, runner)

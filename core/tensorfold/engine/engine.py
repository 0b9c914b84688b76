"""The engine as the front sees it: checks and queues requests on the event loop, runs them on its own thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from tensorfold.compute.runner import Runner
from tensorfold.contracts.chat import ChatFormat, Tokenizer
from tensorfold.contracts.engine import EngineStatus, PreparedPrompt
from tensorfold.contracts.policy import Load, SchedulerPolicy
from tensorfold.engine.admission import Admission, CompilesGates, GateMaker, PromptSource, no_gates
from tensorfold.engine.capacity import effective_window
from tensorfold.engine.depth import Depth, MeasuredDepth
from tensorfold.engine.drafts import Drafting
from tensorfold.engine.events import LocalStream, Postbox
from tensorfold.engine.front import FrontPool
from tensorfold.engine.job import Job
from tensorfold.engine.loop import EngineLoop, Gauges, Submission
from tensorfold.engine.policies import DefaultPolicy
from tensorfold.engine.settings import EngineSettings
from tensorfold.engine.titles import in_background
from tensorfold.engine.watchdog import Watchdog
from tensorfold.errors import GenerationFailed, Rejected
from tensorfold.ir import JSON, Failed, Finished, Queued, Request, Score, Scored

__all__ = ["LocalEngine"]

POLL = 0.005
"""Seconds between two looks at a thread that is about to end."""


class LocalEngine:
    """Implements `contracts.engine.Engine` over a Runner in this process, which it owns from here on.

    `submit`, `prepare` and `close` are called on one event loop, `status` from anywhere.
    """

    def __init__(
        self,
        runner: Runner[Any],
        *,
        prompts: PromptSource,
        tokenizer: Tokenizer,
        chat: ChatFormat,
        settings: EngineSettings | None = None,
        policy: SchedulerPolicy | None = None,
        drafting: Drafting | None = None,
        depth: Depth | None = None,
        gates: GateMaker = no_gates,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`depth` shares out the rows of a round; None: by what rounds cost. `clock` gives monotonic seconds."""
        settings = EngineSettings() if settings is None else settings
        self.window = effective_window(runner, settings.window)
        """Prompt and reply together, in tokens."""
        self._settings = settings
        self._policy: SchedulerPolicy = DefaultPolicy() if policy is None else policy
        self._clock = clock
        self._lanes = runner.lanes
        self._admission = Admission(
            prompts=prompts,
            tokenizer=tokenizer,
            chat=chat,
            geometry=runner.geometry,
            window=self.window,
            shortage=_shortage(runner, self.window, settings.window),
            chunk=runner.chunk,
            settings=settings,
            drafting=drafting,
            gates=gates,
        )
        self._front = FrontPool(settings.front_threads, settings.front_queue)
        self._gates = gates if isinstance(gates, CompilesGates) else None
        # Grammars take up to a second, and the first one loads its library: templates shall not wait for them.
        self._compiling = FrontPool(settings.compile_threads, settings.compile_queue)
        self._loop = EngineLoop(runner, self._policy, settings, MeasuredDepth() if depth is None else depth, clock)
        self._watchdog = Watchdog(self._loop.stuck, min(settings.round_limit, settings.chunk_limit, 20.0) / 4)
        self._postbox: Postbox | None = None
        self._open: set[LocalStream] = set()
        self._preparing = 0
        self._closing = False

    def start(self) -> None:
        """Start the engine thread, and the one that watches it. They end with `close`."""
        self._loop.start()
        self._watchdog.start()

    # ---- requests ------------------------------------------------------------------------------------------

    async def submit(self, request: Request) -> LocalStream:
        """Check and queue a request; `Queued` is in the stream when this returns."""
        self._check_open()
        arrived = self._clock()
        request = in_background(request)
        job = await self._admitted(partial(self._admission.job, request), request)
        return self._queue(job, arrived)

    async def _admitted(self, make: Callable[[], Job], request: Request) -> Job:
        """The policy lets the request in, and the front pool makes its job."""
        self._policy.admit(request, self._load())
        self._preparing += 1
        try:
            job = await self._made(make, request)
        finally:
            self._preparing -= 1
        self._check_open()
        return job

    async def _made(self, make: Callable[[], Job], request: Request) -> Job:
        if request.grammar is not None and self._gates is not None:
            await self._compiling.run(partial(self._gates.compile, request))
        return await self._front.run(make)

    async def check(self, request: Request) -> None:
        """Make what `submit` would, and drop it."""
        self._check_open()
        await self._made(partial(self._admission.job, request), request)

    def _queue(self, job: Job, arrived: float) -> LocalStream:
        if self._postbox is None:
            self._postbox = Postbox(asyncio.get_running_loop())
        stream = LocalStream(self._postbox, self._loop.wake, self._open.discard)
        stream.push(Queued(len(job.ids)))
        self._open.add(stream)
        if not self._loop.submit(Submission(job, stream, arrived)):
            stream.push(Failed.of(GenerationFailed("the engine has stopped")))
        return stream

    async def prepare(self, request: Request) -> PreparedPrompt:
        """Render and tokenize the prompt as `submit` would, without running it."""
        self._check_open()
        return await self._front.run(partial(self._admission.prepare, request))

    async def score(self, request: Score) -> Scored:
        """How likely each label is to come next; the prompt is computed once for all of them."""
        self._check_open()
        arrived = self._clock()
        job = await self._admitted(partial(self._admission.score_job, request), _shape(request))
        stream = self._queue(job, arrived)
        try:
            async for event in stream:
                match event:
                    case Failed():
                        raise event.error()
                    case Finished() if len(stream.scores) == len(job.scored):
                        return self._admission.answer(request, stream.scores, stream.top, event)
                    case _:
                        pass
        finally:
            stream.cancel()
        raise GenerationFailed("the request ended before its labels were scored")

    def _check_open(self) -> None:
        if self._closing:
            raise Rejected("the server is shutting down")
        if self._loop.over:
            raise Rejected("the engine has stopped, and the server has to be restarted", retry_after=60.0)

    def _load(self) -> Load:
        gauges = self._loop.gauges
        running = min(gauges.requests, len(self._open))
        return Load(
            running=running,
            waiting=len(self._open) - running + self._preparing,
            lanes=self._lanes,
            free_tokens=0 if gauges.memory is None else gauges.memory.positions_free + gauges.memory.positions_spare,
        )

    # ---- status --------------------------------------------------------------------------------------------

    def status(self) -> EngineStatus:
        """The engine at this moment; takes no lock."""
        loop = self._loop
        problem = loop.problem or loop.stuck() or loop.lanes_problem
        if problem is None and loop.over:
            problem = "the engine has stopped"
        load = self._load()
        return EngineStatus(
            healthy=problem is None,
            problem=problem,
            running=load.running,
            waiting=load.waiting,
            details=self._details(load),
        )

    def _details(self, load: Load) -> dict[str, JSON]:
        totals, gauges = self._loop.totals, self._loop.gauges
        failure = totals.last_failure
        return {
            "busy": load.running + load.waiting > 0,
            "requests_running": load.running,
            "requests_waiting": load.waiting,
            "requests_total": totals.requests,
            "requests_failed": totals.failures,
            "last_failure": None
            if failure is None
            else {"at": failure.at, "doing": failure.doing, "error": failure.error},
            "prompt_tokens_total": totals.prompt_tokens,
            "cached_tokens_total": totals.cached_tokens,
            "completion_tokens_total": totals.completion_tokens,
            "drafted_total": totals.drafted,
            "accepted_total": totals.accepted,
            "drafts_total": totals.drafts,
            "rounds_total": totals.rounds,
            "chunks_total": totals.chunks,
            "preemptions_total": self._loop.preemptions,
            "lanes_yielded_total": self._loop.yields,
            "prefill_seconds_total": totals.prefill_seconds,
            "decode_seconds_total": totals.decode_seconds,
            "streams": {"decoding": gauges.decoding, "prefilling": gauges.prefilling, "maximum": self._lanes},
            "context_length": self.window,
            "positions_total": 0 if gauges.memory is None else gauges.memory.positions,
            "positions_free": load.free_tokens,
            "prefixes": gauges.prefixes,
            "prefix_bytes": gauges.prefix_bytes,
            "prefix_hits_total": gauges.prefix_hits,
            "prefix_evictions_total": gauges.prefix_evictions,
            "prompt_tokens_begun_total": totals.begun_tokens,
            "prompt_tokens_reused_total": totals.reused_tokens,
            "prompt_tokens_computed_total": totals.computed_tokens,
            "chunk_seconds_total": totals.chunk_seconds,
            "round_seconds_total": totals.round_seconds,
            "longest_sequence": totals.longest,
            **_pools(gauges),
            **_shelf(gauges),
        }

    # ---- the end -------------------------------------------------------------------------------------------

    async def close(self, grace: float) -> None:
        """Refuse new requests, let the open ones finish for `grace` seconds, abort the rest and stop the thread.

        A round that does not return is left alone after `stop_limit` seconds: its thread ends with the process.
        """
        self._closing = True
        loop = asyncio.get_running_loop()
        await self._until(lambda: not self._open or self._loop.over, loop.time() + grace)
        self._loop.stop()
        await self._until(lambda: self._loop.over, loop.time() + self._settings.stop_limit)
        self._watchdog.stop()
        await self._front.close(self._settings.stop_limit)
        await self._compiling.close(self._settings.stop_limit)
        if self._loop.over:
            self._loop.join()
            # What the thread said last is on its way: let it arrive.
            await asyncio.sleep(0)
        else:
            structlog.get_logger().error("the engine thread does not return", problem=self._loop.stuck())
        for stream in tuple(self._open):
            stream.push(Failed.of(GenerationFailed("the engine was stopped before the reply had ended")))

    @staticmethod
    async def _until(done: Callable[[], bool], end: float) -> None:
        loop = asyncio.get_running_loop()
        while not done() and loop.time() < end:
            await asyncio.sleep(POLL)


def _pools(gauges: Gauges) -> dict[str, JSON]:
    pools = () if gauges.memory is None else gauges.memory.pools
    return {"pools": {each.name: {"positions": each.positions, "used": each.used, "kept": each.kept} for each in pools}}


def _shelf(gauges: Gauges) -> dict[str, JSON]:
    """Kept prompts on disk, where there is a place for them."""
    shelf = gauges.shelf
    if shelf is None:
        return {}
    return {"disk": {"tokens": shelf.tokens, "bytes": shelf.bytes, "fetched_tokens_total": shelf.fetched_tokens}}


def _shortage(runner: Runner[Any], window: int, asked: int | None) -> str:
    """What a caller whose prompt is too long should know when it is memory that makes the window short."""
    wanted = runner.geometry.window if asked is None else min(asked, runner.geometry.window)
    if window >= wanted:
        return ""
    return (
        f" The model's own window is {runner.geometry.window}; the memory for states of this server holds"
        f" {runner.memory().positions} tokens: fewer --parallel lanes or more --state-memory make room for more."
    )


def _shape(score: Score) -> Request:
    """What a policy sees of a request for scores."""
    return Request(id=score.id, prompt=score.prompt, priority=score.priority, principal=score.principal)

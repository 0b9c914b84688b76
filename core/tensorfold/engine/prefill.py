"""A prompt's chunks: computed by its plan, kept where others may begin, and behind the last one the replies begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tensorfold.compute.runner import Output
from tensorfold.contracts.sampling import Draw, Drawn
from tensorfold.contracts.step import Segment, Want
from tensorfold.engine.active import ActiveRequest, Entry
from tensorfold.engine.plan import Chunk
from tensorfold.engine.scoring import Scoring
from tensorfold.engine.sequence import Window
from tensorfold.engine.steps import Steps, slot_of
from tensorfold.errors import GenerationFailed, OutOfPages
from tensorfold.ir import Progress, Started

__all__ = ["Prefill"]


@dataclass(frozen=True, slots=True, eq=False)
class _Ran:
    """A chunk that was computed."""

    output: Output[Any]
    windows: Sequence[Window]
    drawn: Sequence[Drawn]
    """The first draw of each window."""


class Prefill:
    """Runs chunks on the engine thread."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._scoring = Scoring(steps)

    def chunk(self, entry: Entry) -> None:
        """Compute the next chunk of one prompt; behind the last one the replies begin."""
        steps, active = self._steps, entry.active
        if entry.prompt_done:
            self._scoring.go_on(entry)
            return
        if active.begin(steps.clock(), entry.computed):
            active.post(Started(active.cached))
            steps.totals.begun_tokens += len(active.job.ids)
            steps.totals.reused_tokens += active.cached
        chunk = entry.next_chunk
        last = chunk.end == len(active.job.ids)
        begun = (entry, *active.sleeping) if last and not active.job.scored else ()
        ran = self._run(entry, chunk, begun)
        if ran is None:
            return
        steps.totals.chunks += 1
        steps.totals.computed_tokens += chunk.end - chunk.start
        steps.totals.longest = max(steps.totals.longest, chunk.end)
        entry.computed = chunk.end
        with steps.roster.guarded("beginning its reply" if last else "keeping its prompt", [active]):
            if not last:
                steps.head.prompt(entry, slot_of(entry), chunk, ran.output, None)
            self._keep(entry)
            self._progress(entry)
            if last and active.job.scored:
                self._scoring.begin(entry, ran.output)
            elif last:
                self._begin(entry, chunk, begun, ran)

    def _run(self, entry: Entry, chunk: Chunk, begun: Sequence[Entry]) -> _Ran | None:
        """The chunk's forward, the first draw of each choice from its last row, and its commit.

        None: the request has failed, or there was no room for it.
        """
        steps, job = self._steps, entry.active.job
        try:
            with steps.roster.guarded("computing its prompt", [entry.active]):
                windows = [each.sequence.first_window() for each in begun]
                slot = slot_of(entry)
                ids = job.ids[chunk.start : chunk.end]
                want: Want = "all" if job.whole else "last" if chunk.end == len(job.ids) else "none"
                output = steps.runner.forward([Segment(slot, ids, chunk.start, want=want, kind="chunk")])
                draws = [window.draws[0].at(output.rows - 1) for window in windows]
                before = ((job.gates, window.states[0]) for window in windows)
                drawn = steps.sample(output, draws, before) if begun else []
                if job.whole:
                    self._read_prompt(entry.active, chunk, output)
                steps.runner.commit(slot, chunk.end)
                return _Ran(output, windows, drawn)
        except OutOfPages as error:
            steps.make_room(error)
        return None

    def _read_prompt(self, active: ActiveRequest, chunk: Chunk, output: Output[Any]) -> None:
        """The log-probability of every prompt token behind a row of this chunk."""
        job = active.job
        if chunk.start == 0:
            active.prompt_tokens[:] = [job.spelled_info(job.ids[0], None)]
        following = job.ids[chunk.start + 1 : chunk.end + 1]
        draws = [
            Draw(row, 0, chunk.start + row + 1, job.rule, forced=token, logprobs=job.request.logprobs)
            for row, token in enumerate(following)
        ]
        for token, drawn in zip(following, self._steps.runner.sample(output, draws), strict=True):
            if drawn.problem is not None:
                raise GenerationFailed(f"the prompt's log-probabilities cannot be read: {drawn.problem}")
            active.prompt_tokens.append(job.spelled_info(token, drawn))

    def _keep(self, entry: Entry) -> None:
        """What was computed so far may serve others."""
        if entry.computed in entry.active.keep:
            self._steps.prefixes.keep(entry.active.job, slot_of(entry), entry.computed)

    def _progress(self, entry: Entry) -> None:
        active = entry.active
        if active.job.request.progress and active.reached(entry.computed):
            seconds = active.since_begin(self._steps.clock())
            active.post(Progress(entry.computed, len(active.job.ids), active.cached, seconds))

    def _begin(self, entry: Entry, chunk: Chunk, begun: Sequence[Entry], ran: _Ran) -> None:
        """The prompt is computed: every choice has its first token, and as many as find a lane go on at once."""
        steps, active = self._steps, entry.active
        active.sleeping.clear()
        active.echo()
        for each, window, first in zip(begun, ran.windows, ran.drawn, strict=True):
            if not steps.accept(each, window, [first]):
                return
        steps.scheduler.run(entry)
        if entry.sequence.stopped is None:
            steps.head.prompt(entry, slot_of(entry), chunk, ran.output, entry.sequence.tokens[-1])
        self._spread(entry, begun[1:])
        steps.settle(active)

    def _spread(self, entry: Entry, others: Sequence[Entry]) -> None:
        """Fork the prompt for a request's other choices; those that find no lane wait, with the prompt kept."""
        steps, now = self._steps, self._steps.clock()
        for each in others:
            each.computed = entry.computed
            if each.sequence.stopped is not None:
                continue
            if steps.lanes.fork(entry, each, steps.scheduler.holders, now):
                steps.scheduler.run(each)
            else:
                steps.lanes.keep(entry)
                steps.scheduler.wait(each)

"""The two kinds of steps, and what a failure in one of them costs: the requests that were in it, nobody else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tensorfold.compute.runner import Output, Runner
from tensorfold.contracts.sampling import Draw, Drawn
from tensorfold.contracts.step import Segment
from tensorfold.engine.active import ActiveRequest, Entry
from tensorfold.engine.kept import PrefixCache
from tensorfold.engine.lanes import Lanes
from tensorfold.engine.plan import Chunk
from tensorfold.engine.roster import Roster, Totals
from tensorfold.engine.scheduler import Scheduler
from tensorfold.engine.sequence import Window
from tensorfold.errors import GenerationFailed, OutOfPages
from tensorfold.ir import Progress, Started

__all__ = ["Rounds"]


class Rounds:
    """Runs steps on the engine thread."""

    def __init__(
        self,
        runner: Runner[Any],
        lanes: Lanes,
        prefixes: PrefixCache,
        scheduler: Scheduler,
        roster: Roster,
        totals: Totals,
        *,
        rows: int,
        clock: Callable[[], float],
    ) -> None:
        """`rows` bounds the rows of a round; each reply has at least one."""
        self._runner = runner
        self._lanes = lanes
        self._prefixes = prefixes
        self._scheduler = scheduler
        self._roster = roster
        self._totals = totals
        self._rows = rows
        self._clock = clock

    # ---- a prompt's chunk ----------------------------------------------------------------------------------

    def chunk(self, entry: Entry) -> None:
        """Compute the next chunk of one prompt; behind the last one the replies begin."""
        active = entry.active
        if active.begin(self._clock(), entry.computed):
            active.post(Started(active.cached))
        chunk = entry.next_chunk
        last = chunk.end == len(active.job.ids)
        begun = (entry, *active.sleeping) if last else ()
        windows: list[Window] = []
        drawn: list[Drawn] = []
        try:
            with self._roster.guarded("computing its prompt", [active]):
                windows = [each.sequence.first_window() for each in begun]
                drawn = self._run_chunk(entry, chunk, windows)
        except OutOfPages as error:
            self._make_room(error)
            return
        if active.ended:
            return
        entry.computed = chunk.end
        self._totals.chunks += 1
        self._keep_prefix(entry)
        self._progress(entry)
        if last:
            self._begin_replies(entry, begun, windows, drawn)

    def _run_chunk(self, entry: Entry, chunk: Chunk, windows: Sequence[Window]) -> list[Drawn]:
        """The chunk's forward, the first draw of each window from its last row, and its commit."""
        job, slot = entry.active.job, _slot(entry)
        ids = job.ids[chunk.start : chunk.end]
        output = self._runner.forward(
            [Segment(slot, ids, chunk.start, want="last" if windows else "none", kind="chunk")]
        )
        drawn = self._runner.sample(output, [window.draws[0] for window in windows]) if windows else []
        self._runner.commit(slot, chunk.end)
        return drawn

    def _keep_prefix(self, entry: Entry) -> None:
        """What was computed so far may serve others."""
        active = entry.active
        if entry.computed in active.keep:
            with self._roster.guarded("keeping its prompt", [active]):
                self._prefixes.keep(active.job, _slot(entry), entry.computed)

    def _progress(self, entry: Entry) -> None:
        active = entry.active
        if active.job.request.progress and active.reached(entry.computed):
            active.post(Progress(entry.computed, len(active.job.ids), active.cached, active.since_begin(self._clock())))

    def _begin_replies(
        self, entry: Entry, begun: Sequence[Entry], windows: Sequence[Window], drawn: Sequence[Drawn]
    ) -> None:
        """The prompt is computed: every choice has its first token, and as many as find a lane go on at once."""
        active = entry.active
        active.sleeping.clear()
        for each, window, first in zip(begun, windows, drawn, strict=True):
            if not self._accept(each, window, [first]):
                return
        self._scheduler.run(entry)
        with self._roster.guarded("beginning its other choices", [active]):
            self._spread(entry, begun[1:])
        self._settle(active)

    def _spread(self, entry: Entry, others: Sequence[Entry]) -> None:
        """Fork the prompt for a request's other choices; those that find no lane wait, with the prompt kept."""
        now = self._clock()
        for each in others:
            each.computed = entry.computed
            if each.sequence.stopped is not None:
                continue
            if self._lanes.fork(entry, each, self._scheduler.holders, now):
                self._scheduler.run(each)
            else:
                self._lanes.keep(entry)
                self._scheduler.wait(each)

    # ---- a round of replies --------------------------------------------------------------------------------

    def rows(self, entries: Sequence[Entry]) -> None:
        """One step for all running replies, each with its window."""
        offers = self._offers(entries)
        if not offers:
            return
        segments = [
            Segment(_slot(entry), window.tokens, window.start, want="all", kind="rows") for entry, window in offers
        ]
        drawn: list[list[Drawn]] = []
        try:
            with self._roster.guarded("computing its reply", [entry.active for entry, _ in offers]):
                output = self._runner.forward(segments)
                drawn = self._draw(output, [window for _, window in offers])
        except OutOfPages as error:
            self._make_room(error)
            return
        if not drawn:
            return
        self._totals.rounds += 1
        for (entry, window), answers in zip(offers, drawn, strict=True):
            if not entry.active.ended:
                self._keep(entry, window, answers)
        for active in dict.fromkeys(entry.active for entry, _ in offers):
            self._settle(active)

    def _offers(self, entries: Sequence[Entry]) -> list[tuple[Entry, Window]]:
        share = max(1, self._rows // len(entries))
        offers: list[tuple[Entry, Window]] = []
        for entry in entries:
            if entry.active.ended:
                continue
            with self._roster.guarded("choosing its next tokens", [entry.active]):
                offers.append((entry, entry.sequence.next_window(share)))
        # A later choice of the same request may have failed it.
        return [(entry, window) for entry, window in offers if not entry.active.ended]

    def _draw(self, output: Output[Any], windows: Sequence[Window]) -> list[list[Drawn]]:
        """The draws of all rows in one call, window by window."""
        draws: list[Draw] = []
        for (first, _), window in zip(output.bounds, windows, strict=True):
            draws += [replace(draw, row=first + draw.row) for draw in window.draws]
        drawn = iter(self._runner.sample(output, draws))
        return [[next(drawn) for _ in window.draws] for window in windows]

    def _keep(self, entry: Entry, window: Window, drawn: Sequence[Drawn]) -> None:
        """Walk the window, then commit once: all tokens kept but the last one, which the next step runs."""
        if self._accept(entry, window, drawn):
            with self._roster.guarded("keeping its states", [entry.active]):
                self._runner.commit(_slot(entry), entry.sequence.position - 1)

    # ---- what both share -----------------------------------------------------------------------------------

    def _accept(self, entry: Entry, window: Window, drawn: Sequence[Drawn]) -> bool:
        """Walk a window and send what it gives; False: the request has failed."""
        active, sequence = entry.active, entry.sequence
        before = sequence.count
        with self._roster.guarded("reading its tokens", [active]):
            for event in sequence.accept(window, drawn):
                active.post(event)
            self._totals.completion_tokens += sequence.count - before
            active.first_token(self._clock())
        return not active.ended

    def _settle(self, active: ActiveRequest) -> None:
        """Choices that have stopped give back their slots; when all have, the request is finished."""
        if active.ended:
            return
        for entry in active.entries:
            if entry.sequence.stopped is not None and entry.slot is not None:
                self._keep_reply(entry, entry.slot)
                self._scheduler.remove(entry)
        if active.stopped:
            self._roster.finish(active)

    def _keep_reply(self, entry: Entry, slot: int) -> None:
        """A reply that has ended may serve the conversation's next turn; its last token is in no state."""
        with self._roster.guarded("keeping its reply", [entry.active]):
            self._prefixes.keep_reply(entry.active.job, entry.sequence.sent[:-1], slot)

    def _make_room(self, error: OutOfPages) -> None:
        """A step found no pages, and nothing was changed: what is kept goes first, then the newest yields."""
        if self._prefixes.free_some() or self._scheduler.forget_kept() or self._scheduler.yield_newest():
            return
        for entry in self._scheduler.holders:
            self._roster.fail(entry.active, _too_large(entry, error), "growing")


def _slot(entry: Entry) -> int:
    if entry.slot is None:
        raise GenerationFailed("the engine lost the slot of this reply")
    return entry.slot


def _too_large(entry: Entry, error: OutOfPages) -> GenerationFailed:
    return GenerationFailed(
        f"the state memory is full at position {entry.sequence.position} of this request, which runs alone ({error}):"
        " ask for a shorter reply, or start the server with a smaller --context or fewer --parallel lanes"
    )

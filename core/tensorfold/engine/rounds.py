"""Rounds of replies: one step for all of them, each with its window, and what a failure in it costs: whose fault it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog

from tensorfold.compute.runner import Output
from tensorfold.contracts.sampling import Draw, Drawn
from tensorfold.contracts.step import Segment
from tensorfold.engine.active import Entry
from tensorfold.engine.depth import Depth
from tensorfold.engine.heads import Followed
from tensorfold.engine.sequence import Window
from tensorfold.engine.steps import Steps, slot_of
from tensorfold.errors import OutOfPages

__all__ = ["Rounds"]


class Rounds:
    """Runs rounds on the engine thread."""

    def __init__(self, steps: Steps, depth: Depth, rows: int) -> None:
        """`rows` bounds the rows of a round."""
        self._steps = steps
        self._depth = depth
        self._rows = rows

    def rows(self, entries: Sequence[Entry]) -> None:
        """One step for running replies, each with its window."""
        offers = self._offers(entries)
        if offers:
            self._round(offers)

    def _round(self, offers: Sequence[tuple[Entry, Window]]) -> None:
        """Run the windows, keep what they give, let the draft head follow."""
        steps = self._steps
        ran = self._run(offers)
        if ran is None:
            return
        output, drawn = ran
        steps.totals.rounds += 1
        followed = [
            kept
            for place, ((entry, window), answers) in enumerate(zip(offers, drawn, strict=True))
            if (kept := self._keep(place, entry, window, answers)) is not None
        ]
        if steps.head.on:
            self._follow(followed, output)
        for active in dict.fromkeys([entry.active for entry, _ in offers if entry.sequence.stopped is not None]):
            steps.settle(active)

    def _offers(self, entries: Sequence[Entry]) -> list[tuple[Entry, Window]]:
        counts = self._counts(entries)
        # What guesses leave is shared out for runs that gates force.
        more = max(0, self._rows - len(entries) - sum(counts)) // len(entries)
        offers: list[tuple[Entry, Window]] = []
        rows = 0
        for entry, count in zip(entries, counts, strict=True):
            if entry.active.ended:
                continue
            try:
                window = entry.sequence.next_window(count, count + 1 + more, rows)
                offers.append((entry, window))
                rows += len(window.tokens)
            except Exception as error:  # noqa: BLE001 (a plugin may raise anything)
                self._steps.roster.blame([entry.active], error, "choosing its next tokens")
        # A later choice of the same request may have failed it.
        return [offer for offer in offers if not offer[0].active.ended]

    def _counts(self, entries: Sequence[Entry]) -> Sequence[int]:
        """How many guesses each reply may offer."""
        if len(entries) >= self._rows:
            return [0] * len(entries)  # PERF: no row is left for one
        outlooks = [() if entry.active.ended else entry.sequence.outlook(self._rows - 1) for entry in entries]
        return self._depth.share(outlooks, self._rows)

    def _run(self, offers: Sequence[tuple[Entry, Window]]) -> tuple[Output[Any], list[list[Drawn]]] | None:
        """The round's forward and all its draws; None: it has failed, or found no room, or was run otherwise."""
        steps = self._steps
        try:
            if len({entry.active for entry, _ in offers}) > 1:
                return self._run_together(offers)
            with steps.roster.guarded("computing its reply", [entry.active for entry, _ in offers]):
                return self._forward(offers)
        except OutOfPages as error:
            steps.make_room(error)
        return None

    def _run_together(self, offers: Sequence[tuple[Entry, Window]]) -> tuple[Output[Any], list[list[Drawn]]] | None:
        """The round of several requests. When it fails, each is run alone, which gives it the same bits: then only the
        one whose fault it is has to end.

        Raises:
            OutOfPages: there is no room.
        """
        try:
            return self._forward(offers)
        except OutOfPages:
            raise
        except Exception as error:  # noqa: BLE001 (a model or a backend may raise anything)
            structlog.get_logger().warning(
                "a round failed: each of its requests is run alone", requests=len(offers), exc_info=error
            )
        for entry, _ in offers:
            with self._steps.roster.guarded("dropping a failed round", [entry.active]):
                self._steps.runner.abandon(slot_of(entry))
        for entry, window in offers:
            if not entry.active.ended and entry.slot is not None:
                self._round([(entry, window)])
        return None

    def _forward(self, offers: Sequence[tuple[Entry, Window]]) -> tuple[Output[Any], list[list[Drawn]]]:
        steps = self._steps
        began = steps.clock()
        output = steps.runner.forward(
            [Segment(slot_of(entry), window.tokens, window.start, "all", "rows") for entry, window in offers]
        )
        drawn = self._draw(output, offers)
        self._depth.ran(sum(len(window.tokens) for _, window in offers), steps.clock() - began)
        return output, drawn

    def _draw(self, output: Output[Any], offers: Sequence[tuple[Entry, Window]]) -> list[list[Drawn]]:
        """The draws of all rows in one call, window by window."""
        draws: list[Draw] = []
        for (first, _), (_, window) in zip(output.bounds, offers, strict=True):
            # Where they stand already, unless a reply before them has failed since.
            draws += [draw.at(row) for row, draw in enumerate(window.draws, first)]
        before = ((entry.active.job.gates, states) for entry, window in offers for states in window.states)
        drawn = self._steps.sample(output, draws, before)
        if len(drawn) == len(offers):
            return [[each] for each in drawn]
        following = iter(drawn)
        return [[next(following) for _ in window.draws] for _, window in offers]

    def _keep(self, place: int, entry: Entry, window: Window, drawn: Sequence[Drawn]) -> Followed | None:
        """Walk the window, then commit once: all tokens kept but the last one, which the next step runs."""
        steps, sequence = self._steps, entry.sequence
        if entry.active.ended or not steps.accept(entry, window, drawn):
            return None
        slot = slot_of(entry)
        try:
            steps.runner.commit(slot, sequence.position - 1)
        except Exception as error:  # noqa: BLE001 (a device may raise anything)
            steps.roster.blame([entry.active], error, "keeping its states")
        if not steps.head.on or sequence.stopped is not None or sequence.serial or entry.active.ended:
            return None
        kept = sequence.tokens[window.start + 1 - sequence.position :]
        return Followed(entry, slot, place, window.start, tuple(kept))

    def _follow(self, followed: Sequence[Followed], output: Output[Any]) -> None:
        """The draft head follows those that go on; a request that failed since has given back its slots."""
        going = [each for each in followed if not each.entry.active.ended]
        with self._steps.roster.guarded("guessing its next tokens", [each.entry.active for each in going]):
            self._steps.head.replies(going, output)

"""The model's draft head: it follows every reply one token ahead, and guesses what comes next.

Row p of the head takes the decoder's hidden row p and the token at p + 1. Its states have a length of their own; once
it has missed rows of a reply it cannot follow that reply any more, and the reply goes on without it. A head that reads
the decoder's states has nothing to follow: it takes a reply's last row, whenever it guesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from tensorfold.compute.runner import HiddenRows, Output, Runner
from tensorfold.contracts.step import Segment
from tensorfold.engine.active import Entry
from tensorfold.engine.plan import Chunk
from tensorfold.errors import OutOfPages

__all__ = ["DraftHead", "Followed"]

WORTH = 0.3
"""A guess that is right less often is not worth the guesses behind it."""


@dataclass(frozen=True, slots=True, eq=False)
class Followed:
    """Tokens of one reply that a round has kept."""

    entry: Entry
    slot: int
    segment: int
    """Of the round's output."""
    start: int
    """Position of the segment's first row."""
    tokens: tuple[int, ...]
    """Those kept: the first one was drawn from the segment's first row."""


class DraftHead:
    """The head of one runner's model. Used by the engine thread alone."""

    def __init__(self, runner: Runner[Any], depth: int) -> None:
        """`depth` is the most guesses that follow each other; more than one where the head's states can go back."""
        self._runner = runner
        self._depth = depth if runner.shared_draft or (runner.drafts and runner.can_rewind_drafts) else min(depth, 1)
        self._on = runner.drafts and depth > 0

    @property
    def on(self) -> bool:
        """Whether there is a head that works."""
        return self._on

    def prompt(self, entry: Entry, slot: int, chunk: Chunk, output: Output[Any], first: int | None) -> None:
        """A chunk of a prompt was computed; `first` is the reply's first token when it was the last chunk."""
        if not self._on:
            return
        if self._runner.shared_draft:
            if first is not None:
                self._guess_beside([entry], [slot], [HiddenRows(output, 0, 1, chunk.end - chunk.start - 1)], [first])
            return
        if self._runner.length(slot, "draft") != chunk.start:
            return
        ids = entry.active.job.ids[chunk.start + 1 : chunk.end + 1]
        tokens = ids if first is None else (*ids, first)
        segment = Segment(slot, tokens, chunk.start, want="none" if first is None else "last", kind="chunk")
        followed = self._run([segment], [HiddenRows(output, 0, len(tokens))])
        if followed is not None:
            self._runner.commit(slot, chunk.start + len(tokens), "draft")
            if first is not None:
                self._guess([entry], [slot], followed)

    def replies(self, followed: Sequence[Followed], output: Output[Any]) -> None:
        """A round was computed and its tokens are kept: follow them, and guess what comes next."""
        if not self._on:
            return
        if self._runner.shared_draft:
            going = [each for each in followed if each.tokens]
            last = [HiddenRows(output, each.segment, 1, len(each.tokens) - 1) for each in going]
            tokens = [each.tokens[-1] for each in going]
            self._guess_beside([each.entry for each in going], [each.slot for each in going], last, tokens)
            return
        able = [each for each in followed if self._runner.length(each.slot, "draft") == each.start and each.tokens]
        if not able:
            return
        segments = [Segment(each.slot, each.tokens, each.start, want="last") for each in able]
        hidden = [HiddenRows(output, each.segment, len(each.tokens)) for each in able]
        ran = self._run(segments, hidden)
        if ran is None:
            return
        for each in able:
            self._runner.commit(each.slot, each.start + len(each.tokens), "draft")
        self._guess([each.entry for each in able], [each.slot for each in able], ran)

    def _guess(self, entries: Sequence[Entry], slots: Sequence[int], output: Output[Any]) -> None:
        """The first guess of each reply from its last row, further ones from the guesses before them."""
        lengths = [self._runner.length(slot, "draft") for slot in slots]
        guesses = self._drawn(entries, output, 0)
        runs = [[guess] for guess in guesses]
        for ahead in range(1, self._depth):
            if not any(entry.sequence.promising(ahead, WORTH) for entry in entries):
                break
            segments = [
                Segment(slot, (run[-1],), length + ahead - 1, want="last")
                for slot, run, length in zip(slots, runs, lengths, strict=True)
            ]
            last = [
                HiddenRows(output, place, 1, first=last - 1 - first) for place, (first, last) in enumerate(output.spans)
            ]
            further = self._run(segments, last)
            if further is None:
                break
            output = further
            for slot, length in zip(slots, lengths, strict=True):
                self._runner.commit(slot, length + ahead, "draft")
            for run, guess in zip(runs, self._drawn(entries, output, ahead), strict=True):
                run.append(guess)
        for entry, slot, length, run in zip(entries, slots, lengths, runs, strict=True):
            if self._runner.length(slot, "draft") > length:
                self._runner.rewind_drafts(slot, length)
            entry.sequence.suggest(run)

    def _guess_beside(
        self,
        entries: Sequence[Entry],
        slots: Sequence[int],
        hidden: Sequence[HiddenRows[Any]],
        tokens: Sequence[int],
    ) -> None:
        """Guess from the decoder's last row of each reply and the token drawn from it; every guess stands there."""
        runs: list[list[int]] = [[] for _ in entries]
        for ahead in range(self._depth if entries else 0):
            if ahead and not any(entry.sequence.promising(ahead, WORTH) for entry in entries):
                break
            segments = [
                Segment(slot, (token,), self._runner.length(slot) - 1)
                for slot, token in zip(slots, tokens, strict=True)
            ]
            output = self._run(segments, hidden)
            if output is None:
                break
            tokens = self._drawn(entries, output, ahead)
            hidden = [HiddenRows(output, place, 1) for place in range(len(entries))]
            for run, token in zip(runs, tokens, strict=True):
                run.append(token)
        for entry, run in zip(entries, runs, strict=True):
            entry.sequence.suggest(run)

    def _drawn(self, entries: Sequence[Entry], output: Output[Any], ahead: int) -> list[int]:
        draws = [entry.sequence.draft_draw(row, ahead) for row, entry in enumerate(entries)]
        return [drawn.token for drawn in self._runner.sample(output, draws)]

    def _run(self, segments: Sequence[Segment], hidden: Sequence[HiddenRows[Any]]) -> Output[Any] | None:
        """One step of the head; None: it has no room, or fails, which is told once and costs nothing but speed."""
        try:
            return self._runner.draft(segments, hidden)
        except OutOfPages:
            return None
        except Exception:  # noqa: BLE001 (a device may raise anything, and no reply depends on a guess)
            structlog.get_logger().exception("the draft head failed and is turned off")
            self._on = False
            for each in segments:
                self._runner.abandon(each.slot)
            return None

"""Segments to a Step: rows laid end to end, positions, history, page tables, wanted rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.pages import PageTables
from tensorfold.contracts.arrays import A
from tensorfold.contracts.backend import Session
from tensorfold.contracts.states import Group
from tensorfold.contracts.step import Kind, Segment, Step

__all__ = ["StepBuilder"]


class StepBuilder(Generic[A]):
    """Builds the Steps of one runner."""

    def __init__(self, session: Session[A], tables: PageTables) -> None:
        self._session = session
        self._tables = tables

    def build(self, kind: Kind, segments: Sequence[Segment], group: Group, before: Sequence[Sequence[int]]) -> Step[A]:
        """The Step of these segments, whose pages are reserved; `before` holds each slot's committed tokens."""
        bounds: list[tuple[int, int]] = []
        tokens: list[int] = []
        places: list[int] = []
        for each in segments:
            first = len(tokens)
            tokens += each.tokens
            places += range(each.start, each.start + len(each.tokens))
            bounds.append((first, len(tokens)))
        ids = np.asarray(tokens, dtype=np.int32)
        positions = np.asarray(places, dtype=np.int32)
        wanted = self._wanted(segments, bounds)
        return Step(
            kind=kind,
            segments=tuple(segments),
            bounds=tuple(bounds),
            ids=self._session.array(ids),
            positions=self._session.array(positions),
            host_ids=ids,
            host_positions=positions,
            history=_history(segments, bounds, before),
            pages={
                key: tuple(self._tables.pages(each.slot, key) for each in segments) for key in self._tables.keys(group)
            },
            wanted=None if wanted is None else self._session.array(wanted),
        )

    def wanted_bounds(self, segments: Sequence[Segment]) -> tuple[tuple[int, int], ...]:
        """For each segment, the range of its wanted rows among all wanted rows."""
        bounds: list[tuple[int, int]] = []
        total = 0
        for each in segments:
            count = 0 if each.want == "none" else 1 if each.want == "last" else len(each.tokens)
            bounds.append((total, total + count))
            total += count
        return tuple(bounds)

    @staticmethod
    def _wanted(segments: Sequence[Segment], bounds: Sequence[tuple[int, int]]) -> NDArray[np.int32] | None:
        """The rows whose logits are asked for; None: every row."""
        if all(each.want == "all" or (each.want == "last" and len(each.tokens) == 1) for each in segments):
            return None
        rows: list[int] = []
        for each, (first, last) in zip(segments, bounds, strict=True):
            match each.want:
                case "all":
                    rows.extend(range(first, last))
                case "last":
                    rows.append(last - 1)
                case "none":
                    pass
        return np.asarray(rows, dtype=np.int32)


def _history(
    segments: Sequence[Segment], bounds: Sequence[tuple[int, int]], before: Sequence[Sequence[int]]
) -> Callable[[int], NDArray[np.int64]]:
    # The token lists only grow behind the segments' starts while the Step lives, so they are read without a copy.
    def history(n: int) -> NDArray[np.int64]:
        out = np.full((bounds[-1][1], n), -1, dtype=np.int64)
        for each, (first, last), tokens in zip(segments, bounds, before, strict=True):
            sequence = np.asarray([*tokens[max(0, each.start - n) : each.start], *each.tokens], dtype=np.int64)
            offset = len(sequence) - len(each.tokens)
            for back in range(1, n + 1):
                skipped = max(0, back - offset)
                if skipped < last - first:
                    out[first + skipped : last, back - 1] = sequence[offset + skipped - back : len(sequence) - back]
        return out

    return history

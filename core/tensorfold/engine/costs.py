"""What a step costs by its number of rows, from the steps that were run."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping

__all__ = ["StepCosts"]

SAMPLES = 9
"""Steps of one size that are remembered: costs grow with the context, so old ones do not count."""
GROWTH = 0.03
"""By which share of one row's cost a row is taken to make a step dearer, before larger steps have been seen."""


class StepCosts:
    """Seconds by rows. Between sizes that were seen, and beyond them, a straight line."""

    def __init__(self, known: Mapping[int, float] | None = None) -> None:
        """`known` are seconds by rows from a trial run."""
        self._seen: dict[int, deque[float]] = {}
        self._sizes: list[int] = []
        for rows, seconds in (known or {}).items():
            self.record(rows, seconds)

    @property
    def known(self) -> bool:
        """Whether any step was seen."""
        return bool(self._sizes)

    def record(self, rows: int, seconds: float) -> None:
        """A step of so many rows took so long."""
        if rows not in self._seen:
            self._seen[rows] = deque(maxlen=SAMPLES)
            self._sizes = sorted(self._seen)
        self._seen[rows].append(seconds)

    def table(self, most: int) -> list[float]:
        """The cost of 0 to `most` rows; never less for more rows.

        Whatever else the machine does only makes a step slower, so where fewer rows seem to cost more than more rows
        do, the lower cost is the right one.
        """
        furthest = max(most, self._sizes[-1] if self._sizes else 0)
        table = [0.0, *(self.of(rows) for rows in range(1, furthest + 1))]
        for rows in range(furthest - 1, 0, -1):
            table[rows] = min(table[rows], table[rows + 1])
        return table[: most + 1]

    def hoped(self, most: int) -> list[float]:
        """The cost of 0 to `most` rows if further rows were as cheap as they may be."""
        one = self.of(1)
        return [0.0, *(one * (1.0 + GROWTH * (rows - 1)) for rows in range(1, most + 1))]

    def of(self, rows: int) -> float:
        """Seconds; 0 when nothing was seen."""
        if not self._sizes:
            return 0.0
        place = bisect_left(self._sizes, rows)
        if place < len(self._sizes) and self._sizes[place] == rows:
            return self._cost(place)
        if place == 0:
            return self._cost(0)
        if place == len(self._sizes):
            return self._cost(place - 1) + self._slope() * (rows - self._sizes[-1])
        low, high = self._sizes[place - 1], self._sizes[place]
        share = (rows - low) / (high - low)
        return self._cost(place - 1) * (1 - share) + self._cost(place) * share

    def _slope(self) -> float:
        """Seconds a row beyond the largest size that was seen."""
        if len(self._sizes) == 1:
            return GROWTH * self._cost(0)
        rise = self._cost(len(self._sizes) - 1) - self._cost(0)
        return max(0.0, rise) / (self._sizes[-1] - self._sizes[0])

    def _cost(self, place: int) -> float:
        samples = sorted(self._seen[self._sizes[place]])
        return samples[len(samples) // 3]

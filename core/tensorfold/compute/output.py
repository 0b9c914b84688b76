"""What a step leaves to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.contracts.arrays import A
from tensorfold.contracts.states import Group

__all__ = ["HiddenRows", "Output"]


@dataclass(frozen=True, slots=True)
class Output(Generic[A]):
    """What a forward leaves to read: hidden rows, until the next forward."""

    hidden: A
    """`[R, H]`: every row of the step."""
    picked: A | None
    """`[N, H]`: the wanted rows; None when there are none."""
    bounds: tuple[tuple[int, int], ...]
    """For each segment, the range of its wanted rows in `picked`, end exclusive."""
    spans: tuple[tuple[int, int], ...]
    """For each segment, the range of all its rows in `hidden`."""
    group: Group = "main"
    """Whose rows they are: the decoder's, or its draft head's."""

    @property
    def rows(self) -> int:
        """N, the number of wanted rows."""
        return self.bounds[-1][1] if self.bounds else 0


@dataclass(frozen=True, slots=True)
class HiddenRows(Generic[A]):
    """Rows of an output's hidden states, to be given to a draft head."""

    output: Output[A]
    segment: int
    count: int
    """So many rows of the segment."""
    first: int = 0
    """The first of them."""

    @property
    def rows(self) -> A:
        """`[count, H]`."""
        begin = self.output.spans[self.segment][0] + self.first
        rows: A = self.output.hidden[begin : begin + self.count]
        return rows

"""How much one sequence takes, from the declared states alone: what grows with it, and what does not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from tensorfold.compute.store import columns, fixed_shape
from tensorfold.contracts.states import KV, PAGE, Group, IndexKeys, Latent, StateSpec

__all__ = ["StateSizes"]


@dataclass(frozen=True, slots=True)
class StateSizes:
    """Bytes of one sequence in the states of one group."""

    token: Fraction
    """For each position; a key that stands for several of them counts in part."""
    sequence: int
    """Beside that: recurrent states, tails, and windows, which are full at most."""

    @staticmethod
    def of(states: Mapping[str, StateSpec], itemsize: int, group: Group = "main") -> StateSizes:
        """With activations of so many bytes; recurrent states are always float32."""
        token, sequence = Fraction(0), 0
        for spec in states.values():
            if spec.group != group:
                continue
            if not isinstance(spec, KV | Latent | IndexKeys):
                shape, element = fixed_shape(spec)
                sequence += math.prod(shape) * (itemsize if element == "act" else 4)
                continue
            page = itemsize * sum(column.heads * column.rows * column.width for column in columns(spec))
            if isinstance(spec, KV) and spec.window is not None:
                # The newest row needs no place among those that it sees.
                sequence += (spec.window - 1) * page // PAGE
            else:
                token += Fraction(page, PAGE)
        return StateSizes(token, sequence)

    def at(self, positions: int) -> int:
        """Bytes of a sequence of this length."""
        return math.ceil(self.token * positions) + self.sequence

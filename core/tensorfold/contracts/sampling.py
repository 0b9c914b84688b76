"""One draw: what a sampler is told of a row, and what it answers. The rule itself is `compute.sampling`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from tensorfold.ir import Alternative

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Draw", "Drawn", "SamplingRule"]


@dataclass(frozen=True, slots=True)
class SamplingRule:
    """A request's sampling after the server's and the checkpoint's defaults; every value is set."""

    temperature: float = 1.0
    """0: argmax, ties to the lower id."""
    top_p: float = 1.0
    top_k: int = 0
    """0: off."""
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def penalizes(self) -> bool:
        """Whether a draw depends on which tokens came before."""
        return self.presence_penalty != 0.0 or self.frequency_penalty != 0.0 or self.repetition_penalty != 1.0


class Draw(msgspec.Struct, frozen=True, eq=False):
    """One token to draw from one row of logits: a pure function of this value and the row.

    PERF: made once or twice a token; a dataclass would take six times as long.
    """

    row: int
    """Which row of the step's logits."""
    key: int
    """The choice's sampling key, an unsigned 64-bit integer."""
    position: int
    """The absolute position of the token that is drawn."""
    rule: SamplingRule
    allowed: NDArray[np.bool_] | None = None
    """`[V]`: the gates' mask; None: every token."""
    forced: int | None = None
    """The token that a gate forces; nothing is drawn then."""
    counts: Mapping[int, int] = msgspec.field(default_factory=dict[int, int])
    """How often each token occurred in prompt and reply before this row; read only when the rule penalizes."""
    logprobs: int | None = None
    """How many alternatives to report; None: no log-probabilities."""

    def at(self, row: int) -> Draw:
        """The same draw from another row."""
        if row == self.row:
            return self
        return Draw(row, self.key, self.position, self.rule, self.allowed, self.forced, self.counts, self.logprobs)


class Drawn(msgspec.Struct, frozen=True):
    """What was drawn."""

    token: int
    logprob: float | None = None
    """Of the raw row at temperature 1, before gates, penalties and filters; None when not asked for."""
    alternatives: tuple[Alternative, ...] = ()
    """The likeliest tokens of the raw row, ties to the lower id; their data is empty here."""
    problem: str | None = None
    """Why nothing could be drawn (the row is not finite, every token is masked); `token` means nothing then."""

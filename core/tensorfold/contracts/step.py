"""One call of a decoder: segments of sequences, laid end to end as rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

import msgspec

from tensorfold.contracts.arrays import A
from tensorfold.contracts.states import TableKey

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Embeds", "Kind", "Segment", "Step", "Want"]

Kind: TypeAlias = Literal["chunk", "rows"]
"""A Step is one `chunk` segment (parallel kernels, planned shape, committed whole) or any number of `rows` segments
(row kernels, bits independent of the neighbours, may be committed in part)."""

Want: TypeAlias = Literal["none", "last", "all"]
"""Which rows' logits are asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Embeds:
    """Rows that replace token embeddings (an image's)."""

    rows: NDArray[np.float32]
    """`[n, hidden]`."""
    at: tuple[int, ...]
    """Which rows of the segment they replace."""


class Segment(msgspec.Struct, frozen=True):
    """The next tokens of one sequence."""

    slot: int
    tokens: tuple[int, ...]
    start: int
    """Position of the first token: the sequence's committed length."""
    want: Want = "last"
    kind: Kind = "rows"
    embeds: Embeds | None = None


@dataclass(slots=True)
class Step(Generic[A]):
    """What the Runner hands to a decoder. `R` is the number of rows, the segments' tokens together."""

    kind: Kind
    segments: tuple[Segment, ...]
    bounds: tuple[tuple[int, int], ...]
    """The row range of each segment, end exclusive."""
    ids: A
    """`[R]` int32, on the device."""
    positions: A
    """`[R]` int32, on the device; `[3, R]` with M-RoPE."""
    host_ids: NDArray[np.int32]
    host_positions: NDArray[np.int32]
    """The same on the host: plans and masks need no device read."""
    history: Callable[[int], NDArray[np.int64]]
    """`history(n)` is `[R, n]`: the tokens before each row, latest first, -1 before the start."""
    pages: Mapping[TableKey, tuple[tuple[int, ...], ...]]
    """For each table and segment, the page ids that hold positions 0 to the segment's end; a page behind the
    window is -1 and never read."""
    wanted: A | None
    """`[N]` rows whose logits are asked for; None: every row."""
    inputs: Mapping[str, A] = field(default_factory=dict[str, A])
    """What `Decoder.prepare` asked to have uploaded; a draft head finds the target's rows under `hidden`."""
    scratch: dict[Any, Any] = field(default_factory=dict[Any, Any])
    """The backend's own: rope tables, masks, block tables; lives as long as the Step."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.bounds[-1][1] if self.bounds else 0

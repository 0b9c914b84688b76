"""The states that a family declares by name and a backend keeps by (slot, name).

How each goes back and is kept (`commit` takes the length to keep; `kept = length - start`):

| state | open rows | commit | snapshot |
|---|---|---|---|
| KV, Latent, IndexKeys | appended to pages | the length is set; a window drops pages afterwards | page references |
| Conv, Recent | tail + the new rows | a slice | the tail |
| Recurrent | committed state, state after, the rows' inputs | "after", or a replay of `kept` rows by the row kernel | the state |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, TypeGuard

__all__ = [
    "KV",
    "PAGE",
    "Conv",
    "Group",
    "IndexKeys",
    "Latent",
    "PagedSpec",
    "Recent",
    "Recurrent",
    "SlotSpec",
    "StateSpec",
    "TableKey",
    "is_paged",
]

PAGE = 64
"""Positions in a page, on every backend."""

Group: TypeAlias = Literal["main", "draft"]
"""States of the decoder, or of its draft head, which has lengths of its own."""


@dataclass(frozen=True, slots=True)
class KV:
    """Keys and values of attention, one row a position."""

    heads: int
    k_dim: int
    v_dim: int
    window: int | None = None
    """A row sees itself and the `window - 1` positions before it; None: all."""
    group: Group = "main"


@dataclass(frozen=True, slots=True)
class Latent:
    """MLA's compressed row `[latent]` and its shared rotary key `[rope]` (0: none)."""

    latent: int
    rope: int
    group: Group = "main"


@dataclass(frozen=True, slots=True)
class IndexKeys:
    """Keys of a sparse-attention indexer: one row a `pool` positions, stored when the pool is complete."""

    dim: int
    pool: int = 1
    """Divides `PAGE`."""
    group: Group = "main"


@dataclass(frozen=True, slots=True)
class Conv:
    """The last `(taps - 1) * dilation` inputs of a causal depthwise convolution."""

    channels: int
    taps: int
    dilation: int = 1
    group: Group = "main"

    @property
    def keep(self) -> int:
        """Rows kept between Steps."""
        return (self.taps - 1) * self.dilation


@dataclass(frozen=True, slots=True)
class Recent:
    """The last `n - 1` inputs, so that each row sees its own and the `n - 1` before it."""

    channels: int
    n: int
    group: Group = "main"

    @property
    def keep(self) -> int:
        """Rows kept between Steps."""
        return self.n - 1


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A recurrent state in float32: gated delta net and KDA `[heads, k, v]`, SSD `[heads, p, n]`."""

    shape: tuple[int, ...]
    group: Group = "main"


PagedSpec: TypeAlias = KV | Latent | IndexKeys
"""States that grow with the sequence and live in refcounted pages."""
SlotSpec: TypeAlias = Conv | Recent | Recurrent
"""States of fixed size, one a slot."""
StateSpec: TypeAlias = PagedSpec | SlotSpec


class TableKey(NamedTuple):
    """States with equal keys share one page table: page number i holds positions 64 i to 64 i + 63 of each.

    PERF: a named tuple, since it is a key of dictionaries several times a token and a dataclass is hashed in Python.
    """

    group: Group
    window: int | None

    @staticmethod
    def of(spec: PagedSpec) -> TableKey:
        """The table that this state follows."""
        return TableKey(spec.group, spec.window if isinstance(spec, KV) else None)


def is_paged(spec: StateSpec) -> TypeGuard[PagedSpec]:
    """Whether the state lives in pages."""
    return isinstance(spec, KV | Latent | IndexKeys)

"""Packed weights: what families hold of this backend."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.handles import Embedding, Linear
from tensorfold_backend_cpu.panels import PANEL, Panels

__all__ = ["CpuEmbedding", "CpuLinear", "Part", "padded_bias"]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Consecutive output rows of a fused group that are stored alike."""

    panels: Panels
    first: int
    """The first of them in the whole group."""
    bias: NDArray[np.float32] | None
    """Up to the end of the last panel."""


@dataclass(eq=False)
class CpuLinear(Linear):
    """A fused group."""

    sizes: tuple[int, ...]
    columns: int
    parts: tuple[Part, ...]

    @property
    def outputs(self) -> int:
        """Of all parts."""
        return sum(self.sizes)


@dataclass(eq=False)
class CpuEmbedding(Embedding):
    """A table."""

    shape: tuple[int, int]
    parts: tuple[Part, ...]


def padded_bias(bias: NDArray[np.float32] | None, panels: Panels) -> NDArray[np.float32]:
    """A bias up to the end of the last panel; zeros when there is none."""
    whole = np.zeros(-(-panels.rows // PANEL) * PANEL, np.float32)
    if bias is not None:
        whole[: len(bias)] = bias
    return whole

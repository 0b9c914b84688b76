"""Packed weights and the constants of an operation: what a family holds instead of raw tensors.

The weight handles are opaque: a backend's packer makes subclasses of them, and only its own operations look inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = [
    "Activation",
    "ConvWeight",
    "Embedding",
    "Experts",
    "LatentUp",
    "Linear",
    "Rope",
    "Router",
]

Activation: TypeAlias = Literal["silu", "gelu", "relu2", "sigmoid"]
"""`gelu` is the tanh form; `relu2` is relu squared."""


class Linear:
    """One or several matrices `[out, in]` with their biases, asked for as one fused group."""

    sizes: tuple[int, ...]
    """Output rows of each fused part, in the order asked."""
    columns: int
    """The input width."""


class Embedding:
    """A table `[vocabulary, hidden]`, which may lie on the host."""

    shape: tuple[int, int]


class Experts:
    """The stacked matrices of a mixture's experts, gate and up fused, with their activation."""

    count: int


class LatentUp:
    """MLA's up-projection of the latent, split by head into its key part and its value part."""

    heads: int


class ConvWeight:
    """Depthwise kernels `[channels, taps]`, oldest tap first, with an optional bias `[channels]`."""

    channels: int


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding, as frequencies: the tables are made once a Step."""

    inv_freq: tuple[float, ...]
    """One a pair; the first `2 * len` dimensions are rotated; a 0 leaves its pair alone."""
    interleaved: bool = False
    """Pairs are (2i, 2i+1) instead of (i, i + len)."""
    scale: float = 1.0
    """Multiplies cosine and sine (YaRN's attention factor)."""
    sections: tuple[int, ...] | None = None
    """M-RoPE: how many pairs follow each of the three position axes; None: one axis."""


@dataclass(frozen=True, slots=True)
class Router:
    """How logits of the experts become choices and weights. Ties go to the lower id."""

    k: int
    """Experts a row."""
    score: Literal["softmax", "sigmoid"]
    renorm: bool = True
    """The chosen weights are divided by their sum."""
    scale: float = 1.0
    """Multiplies the weights afterwards."""
    groups: int = 1
    """Experts lie in so many groups, of which only `keep_groups` stay (by the sum of their two best)."""
    keep_groups: int = 1
    expert_scale: tuple[float, ...] | None = None
    """One factor an expert, by which its weight is multiplied last."""

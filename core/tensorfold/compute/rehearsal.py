"""What a model is built over when its weights are only checked: handles without weights, tensors without memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.handles import Activation, ConvWeight, Embedding, Experts, LatentUp, Linear
from tensorfold.contracts.tensors import Dense, Tensor

__all__ = ["Problem", "ShapePacker", "blank", "stand_in", "summary"]

_LISTED = 30
"""Lines of a message; a checkpoint of another model can have thousands of problems, mostly alike."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one tensor."""

    name: str
    problem: str


def summary(problems: Iterable[Problem]) -> str:
    """A line for each problem; those of tensors that differ in a number alone (the layer) share one."""
    alike: dict[tuple[str, str], list[str]] = {}
    for each in problems:
        alike.setdefault((re.sub(r"(?<=\.)\d+(?=\.)", "*", each.name), each.problem), []).append(each.name)
    lines = [
        f"  {names[0]} {problem}" if len(names) == 1 else f"  {pattern} ({len(names)} tensors) {problem}"
        for (pattern, problem), names in alike.items()
    ]
    if len(lines) > _LISTED:
        lines[_LISTED:] = [f"  and {len(lines) - _LISTED} more problems"]
    return "\n".join(lines)


def stand_in(shape: tuple[int, ...]) -> Dense:
    """A tensor of zeros that takes no memory."""
    return Dense(np.broadcast_to(np.zeros((), np.float32), shape), "f32")


def blank(shape: tuple[int | None, ...] | None) -> Dense:
    """A stand-in for a tensor that is not there as it must be."""
    return stand_in(tuple(size or 1 for size in shape or (1,)))


class ShapePacker:
    """A packer whose handles know their sizes and hold nothing."""

    def linear(self, parts: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Linear:
        """The parts' sizes."""
        packed = Linear()
        packed.sizes = tuple(part.shape[0] for part in parts)
        packed.columns = parts[0].shape[1]
        return packed

    def embedding(self, parts: Sequence[Tensor]) -> Embedding:
        """The table's shape."""
        packed = Embedding()
        packed.shape = (sum(part.shape[0] for part in parts), parts[0].shape[1])
        return packed

    def tied(self, embedding: Embedding) -> Linear:
        """The table's sizes."""
        packed = Linear()
        packed.sizes, packed.columns = embedding.shape[:1], embedding.shape[1]
        return packed

    def vector(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """The zeros themselves."""
        return values

    def conv(self, kernel: NDArray[np.float32], bias: NDArray[np.float32] | None) -> ConvWeight:
        """The channels."""
        packed = ConvWeight()
        packed.channels = kernel.shape[0]
        return packed

    def experts(
        self,
        up: Sequence[Sequence[Tensor]],
        down: Sequence[Tensor],
        *,
        act: Activation,
        gated: bool,
        limit: float | None,
    ) -> Experts:
        """Their number."""
        packed = Experts()
        packed.count = len(down)
        return packed

    def latent_up(self, weight: Tensor, heads: int, nope: int, v: int) -> LatentUp:
        """The heads."""
        packed = LatentUp()
        packed.heads = heads
        return packed

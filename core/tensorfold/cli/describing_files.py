"""What a checkpoint's weight files hold, from their headers: what is read, how it is stored, and what is left."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from tensorfold.checkpoint.base import Checkpoint
from tensorfold.compute.nested import text_config
from tensorfold.compute.stored_weights import StoredWeights
from tensorfold.compute.weights import TensorSource
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.tensors import TensorInfo
from tensorfold.errors import CheckpointNotFound, WeightsMismatch

__all__ = ["ITEMSIZES", "Files", "dtype_of", "files_of"]

ITEMSIZES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number, by the names of types in configs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """What the weight files hold."""

    weights: StoredWeights | None
    """What is read; None: it does not fit the config."""
    left: tuple[tuple[str, int], ...]
    """Modules whose tensors are not read, and how many tensors they have."""
    elements: int
    """Numbers in what is read."""
    problem: str | None
    """Why the weights do not fit."""


def files_of(checkpoint: Checkpoint, check: Callable[[TensorSource], tuple[TensorInfo, ...]]) -> Files | None:
    """What is there of a checkpoint's weights, or None where only its config is; `check` tells which are read.

    Raises:
        CheckpointError: a file cannot be read.
    """
    try:
        names = frozenset(checkpoint.names())
    except CheckpointNotFound:
        return None
    try:
        read = check(checkpoint)
    except WeightsMismatch as mismatch:
        return Files(weights=None, left=(), elements=0, problem=str(mismatch))
    left = names - {info.name for info in read}
    elements = sum(math.prod(info.shape) for info in read)
    return Files(weights=StoredWeights.of(read), left=_modules(left), elements=elements, problem=None)


def dtype_of(config: ModelConfig) -> str:
    """The type that the weights were made in, or are computed in when they are quantized."""
    for section in (text_config(config), config):
        for key in ("dtype", "torch_dtype"):
            name = section.get(str, key, "").removeprefix("torch.")
            if name in ITEMSIZES:
                return name
    return "bfloat16"


def _modules(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """By the first parts of their names, up to the first number."""
    roots: Counter[str] = Counter()
    for name in names:
        parts = name.split(".")[:-1]
        numbers = [place for place, part in enumerate(parts) if part.isdigit()]
        roots[".".join(parts[: min(2, numbers[0] if numbers else 2)]) or name] += 1
    return tuple(sorted(roots.items()))

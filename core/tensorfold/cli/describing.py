"""What a checkpoint is, from its config: family, size, states, memory, and what of it is read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from tensorfold.checkpoint.open import OpenCheckpoint
from tensorfold.compute.declaring import Parameters, count_parameters
from tensorfold.compute.nested import text_config, towers
from tensorfold.compute.state_sizes import StateSizes
from tensorfold.compute.stored_weights import StoredWeights
from tensorfold.compute.weights import check_weights
from tensorfold.contracts.family import Geometry
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.states import KV, Conv, IndexKeys, Latent, Recent, Recurrent, StateSpec
from tensorfold.errors import CheckpointNotFound, WeightsMismatch

__all__ = ["Description", "Files", "describe"]

_ITEMSIZES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A checkpoint, described."""

    opened: OpenCheckpoint
    geometry: Geometry
    parameters: Parameters
    dtype: str
    """The type that the weights were made in, or are computed in when they are quantized."""
    itemsize: int
    """Its bytes."""
    states: tuple[tuple[str, int], ...]
    """Kinds of states, and how many there are of each, without those of the draft head."""
    sizes: StateSizes
    draft_sizes: StateSizes
    context: int
    """For which the memory is told."""
    towers: tuple[str, ...]
    """Parts of the checkpoint beside the text model, which are left."""
    files: Files | None
    """None: only the config is there."""

    @property
    def weights_bytes(self) -> int:
        """As stored; of a config alone, all weights in its type."""
        if self.files is not None and self.files.weights is not None:
            return self.files.weights.bytes
        return (self.parameters.main + self.parameters.draft) * self.itemsize

    @property
    def states_bytes(self) -> int:
        """Of one sequence of the whole context, draft head included."""
        return self.sizes.at(self.context) + self.draft_sizes.at(self.context)


def describe(opened: OpenCheckpoint, context: int | None) -> Description:
    """Read no weight, and of the files only headers, where they are there.

    Raises:
        CheckpointError: the config or a file cannot be read.
    """
    config, family = opened.checkpoint.config, opened.family
    geometry, parameters, files = family.geometry(config), count_parameters(family, config), _files(opened)
    if files is not None and files.weights is not None and files.elements <= parameters.main:
        # The config tells of a draft head that a conversion has dropped.
        geometry, parameters = geometry.without_draft(), replace(parameters, draft=0)
    dtype = _dtype(config)
    itemsize = _ITEMSIZES[dtype]
    return Description(
        opened=opened,
        geometry=geometry,
        parameters=parameters,
        dtype=dtype,
        itemsize=itemsize,
        states=_kinds(geometry.without_draft().states.values()),
        sizes=StateSizes.of(geometry.states, itemsize),
        draft_sizes=StateSizes.of(geometry.states, itemsize, "draft"),
        context=min(context or geometry.window, geometry.window),
        towers=towers(config),
        files=files,
    )


def _dtype(config: ModelConfig) -> str:
    for section in (text_config(config), config):
        for key in ("dtype", "torch_dtype"):
            name = section.get(str, key, "").removeprefix("torch.")
            if name in _ITEMSIZES:
                return name
    return "bfloat16"


def _kinds(states: Iterable[StateSpec]) -> tuple[tuple[str, int], ...]:
    return tuple(Counter(_kind(spec) for spec in states).items())


def _kind(spec: StateSpec) -> str:
    match spec:
        case KV(window=None):
            return "keys and values"
        case KV(window=window):
            return f"keys and values of {window} positions"
        case Latent():
            return "latents"
        case IndexKeys(pool=1):
            return "index keys"
        case IndexKeys(pool=pool):
            return f"index keys of {pool} positions each"
        case Conv():
            return "convolution tails"
        case Recent():
            return "recent inputs"
        case Recurrent():
            return "recurrent states"


def _files(opened: OpenCheckpoint) -> Files | None:
    checkpoint = opened.checkpoint
    try:
        names = frozenset(checkpoint.names())
    except CheckpointNotFound:
        return None
    try:
        read = check_weights(opened.family, checkpoint.config, checkpoint)
    except WeightsMismatch as mismatch:
        return Files(weights=None, left=(), elements=0, problem=str(mismatch))
    left = names - {info.name for info in read}
    elements = sum(math.prod(info.shape) for info in read)
    return Files(weights=StoredWeights.of(read), left=_modules(left), elements=elements, problem=None)


def _modules(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """By the first parts of their names, up to the first number."""
    roots: Counter[str] = Counter()
    for name in names:
        parts = name.split(".")[:-1]
        numbers = [place for place, part in enumerate(parts) if part.isdigit()]
        roots[".".join(parts[: min(2, numbers[0] if numbers else 2)]) or name] += 1
    return tuple(sorted(roots.items()))

"""What a checkpoint is, from its config: family, size, states, memory, and what of it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from tensorfold.checkpoint.drafters import OpenDrafter
from tensorfold.checkpoint.open import OpenCheckpoint
from tensorfold.cli.describing_drafter import DrafterDescription, describe_drafter
from tensorfold.cli.describing_files import ITEMSIZES, Files, dtype_of, files_of
from tensorfold.compute.declaring import Parameters, count_parameters
from tensorfold.compute.loading import check_weights
from tensorfold.compute.nested import towers
from tensorfold.compute.state_sizes import StateSizes
from tensorfold.contracts.family import Geometry
from tensorfold.contracts.states import KV, Conv, IndexKeys, Latent, Recent, Recurrent, StateSpec

__all__ = ["Description", "describe"]


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
    drafter: DrafterDescription | None
    """A checkpoint of its own that would draft for this one."""

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


def describe(opened: OpenCheckpoint, context: int | None, drafter: OpenDrafter | None = None) -> Description:
    """Read no weight, and of the files only headers, where they are there.

    Raises:
        CheckpointError: the config or a file cannot be read.
    """
    config, family = opened.checkpoint.config, opened.family
    geometry, parameters = family.geometry(config), count_parameters(family, config)
    files = files_of(opened.checkpoint, partial(check_weights, family, config))
    if files is not None and files.weights is not None and files.elements <= parameters.main:
        # The config tells of a draft head that a conversion has dropped.
        geometry, parameters = geometry.without_draft(), replace(parameters, draft=0)
    dtype = dtype_of(config)
    itemsize = ITEMSIZES[dtype]
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
        drafter=None if drafter is None else describe_drafter(drafter),
    )


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

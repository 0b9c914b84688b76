"""A family's decoder over a checkpoint: built over names and shapes alone, which finds everything that does not fit before
a weight is read, and then over the weights, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.rehearsal import Problem, ShapePacker, stand_in, summary
from tensorfold.compute.weights import CheckpointWeights, TensorSource
from tensorfold.contracts.arrays import A
from tensorfold.contracts.family import CanPair, Decoder, ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.tensors import Tensor, TensorInfo
from tensorfold.contracts.weights import Packer
from tensorfold.errors import WeightsMismatch

__all__ = ["Progress", "check_drafter", "check_weights", "load_decoder", "load_drafter"]

Progress: TypeAlias = Callable[[int, int], None]
"""Told after every tensor: stored bytes read so far, and in all."""


class _Rehearsal(CheckpointWeights[NDArray[np.float32]]):
    """The same over names and shapes alone: reads nothing that does not steer, and notes problems for all to be told."""

    def __init__(self, source: TensorSource) -> None:
        self.problems: list[Problem] = []
        self.wanted: list[TensorInfo] = []
        super().__init__(source, ShapePacker(), progress=self.wanted.append)

    def _read(self, info: TensorInfo, steers: bool) -> Tensor:
        return super()._read(info, steers) if steers else stand_in(info.shape)

    def _problem(self, name: str, problem: str) -> None:
        self.problems.append(Problem(name, problem))


def check_weights(family: ModelFamily, config: ModelConfig, source: TensorSource) -> tuple[TensorInfo, ...]:
    """Whether a family can be built from these tensors, by names and shapes; gives those that it will read.

    Raises:
        WeightsMismatch: naming every tensor that is missing, misshapen, or there without being run.
    """
    return _checked(
        f"{config.where}: the weights do not fit the {family.name} family", source, partial(family.build, config)
    )


def check_drafter(family: CanPair, drafter: ModelConfig, source: TensorSource) -> tuple[TensorInfo, ...]:
    """The same of a drafter's checkpoint.

    Raises:
        WeightsMismatch: as `check_weights`.
    """
    what = f"{drafter.where}: the weights do not fit its config"
    return _checked(what, source, partial(family.declare_drafter, drafter))


def _checked(what: str, source: TensorSource, build: Callable[[Any], object]) -> tuple[TensorInfo, ...]:
    rehearsal = _Rehearsal(source)
    try:
        build(rehearsal)
    except WeightsMismatch as mismatch:
        # A family that needs a shape cannot go on without it; what was found so far is all told.
        if not rehearsal.problems:
            rehearsal.problems.append(Problem("the checkpoint", f"does not fit: {mismatch}"))
        raise WeightsMismatch(f"{what}:\n{summary(rehearsal.problems)}") from None
    problems = [*rehearsal.problems, *(Problem(name, "is not run by this family") for name in rehearsal.unused())]
    if problems:
        raise WeightsMismatch(f"{what}:\n{summary(problems)}")
    return tuple(rehearsal.wanted)


def load_decoder(
    family: ModelFamily,
    config: ModelConfig,
    source: TensorSource,
    packer: Packer[A],
    *,
    progress: Progress | None = None,
    read: Sequence[TensorInfo] | None = None,
) -> Decoder[A]:
    """Build a family's decoder over packed weights, when all of them fit; `read`: what `check_weights` said of them.

    Raises:
        WeightsMismatch: before any weight is read, naming all that do not fit.
        CheckpointDamaged: the file cannot be read.
    """
    checked = check_weights(family, config, source) if read is None else read
    return family.build(config, CheckpointWeights(source, packer, progress=_told(checked, progress)))


def load_drafter(
    family: CanPair,
    config: ModelConfig,
    decoder: Decoder[A],
    drafter: ModelConfig,
    source: TensorSource,
    packer: Packer[A],
    *,
    progress: Progress | None = None,
) -> Decoder[A]:
    """A decoder with a drafter of its own checkpoint; raises what `load_decoder` raises, of that checkpoint."""
    checked = check_drafter(family, drafter, source)
    weights = CheckpointWeights(source, packer, progress=_told(checked, progress))
    return family.build_drafter(config, decoder, drafter, weights)


def _told(read: Sequence[TensorInfo], progress: Progress | None) -> Callable[[TensorInfo], None] | None:
    if progress is None:
        return None
    total = sum(info.stored_bytes for info in read)
    done = 0

    def told(info: TensorInfo) -> None:
        nonlocal done
        done += info.stored_bytes
        progress(done, total)

    return told

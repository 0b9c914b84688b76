"""The tensors that a config implies: a family is built over weights that exist as soon as it asks for them.

So a model's size is counted, and a random checkpoint of it made, from the family's own code and from nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.rehearsal import ShapePacker, blank, stand_in
from tensorfold.compute.weights import CheckpointWeights
from tensorfold.contracts.family import CanPair, ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.tensors import Tensor, TensorInfo

__all__ = [
    "Parameters",
    "count_drafter_parameters",
    "count_parameters",
    "declared_drafter_tensors",
    "declared_tensors",
]


@dataclass(frozen=True, slots=True)
class Parameters:
    """How many weights a config implies."""

    main: int
    """A tied output head counts once."""
    draft: int
    """Those that only the draft head has."""
    undeclared: tuple[str, ...] = ()
    """Tensors that the family asks for without saying their shape, and which are not counted."""


def count_parameters(family: ModelFamily, config: ModelConfig) -> Parameters:
    """The number of weights, from the config alone.

    Raises:
        CheckpointUnsupported: the family does not run this config.
    """
    plain, whole = _declared(family, config, draft=False), _declared(family, config, draft=True)
    main = _elements(plain.shapes)
    return Parameters(main, _elements(whole.shapes) - main, tuple(sorted({*plain.undeclared, *whole.undeclared})))


def count_drafter_parameters(family: CanPair, drafter: ModelConfig) -> int:
    """The number of a drafter's weights, from its config alone.

    Raises:
        CheckpointUnsupported: the family does not run this config.
    """
    return _elements(declared_drafter_tensors(family, drafter))


def declared_tensors(family: ModelFamily, config: ModelConfig, *, draft: bool = True) -> dict[str, tuple[int, ...]]:
    """Every tensor that the family asks for, by its Hugging Face name, and its shape; with the draft head or without.

    Where a checkpoint may have one of several layouts, it is the one without conversions: experts one by one, tables
    uncut.
    """
    return _declared(family, config, draft=draft).shapes


def declared_drafter_tensors(family: CanPair, drafter: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that the family asks for of a drafter's checkpoint, and its shape."""
    declaration = _Declaration(draft=False)
    family.declare_drafter(drafter, declaration)
    return declaration.shapes


def _declared(family: ModelFamily, config: ModelConfig, *, draft: bool) -> _Declaration:
    declaration = _Declaration(draft=draft)
    family.build(config, declaration)
    return declaration


def _elements(shapes: Mapping[str, tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


class _Declaration(CheckpointWeights[NDArray[np.float32]]):
    """Writes down what it is asked for, and says that it has nothing else."""

    def __init__(self, *, draft: bool) -> None:
        super().__init__(_Nothing(), ShapePacker())
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.undeclared: set[str] = set()
        self._draft = draft

    def has_draft(self, name: str) -> bool:
        return self._draft

    def _filled(self, name: str, shape: tuple[int, ...] | None, *, steers: bool = False) -> NDArray[np.float32]:
        return self._tensor(name, shape).f32()

    def _kernels(self, names: tuple[str, ...], shape: tuple[int, int] | None) -> list[NDArray[np.float32]]:
        # Which of several has how many channels, only a checkpoint says; in all that are known they are alike.
        channels, taps = (None, None) if shape is None else (shape[0] // len(names), shape[1])
        tensors = [self._tensor(f"{name}.weight", (channels, 1, taps)) for name in names]
        return [tensor.f32().reshape(tensor.shape[0], -1) for tensor in tensors]

    def _tensor(self, name: str, shape: tuple[int | None, ...] | None = None, *, steers: bool = False) -> Tensor:
        known = tuple(size for size in shape or () if size is not None)
        if shape is None or len(known) != len(shape):
            self.undeclared.add(name)
            return blank(shape)
        self.shapes[name] = known
        return stand_in(known)


class _Nothing:
    """A source without tensors."""

    def names(self) -> Iterable[str]:
        return ()

    def info(self, name: str) -> TensorInfo:
        self._refuse(name)

    def read(self, name: str) -> Tensor:
        self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        raise KeyError(name)

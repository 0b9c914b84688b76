"""Random checkpoints of any config: the tensors are those that the family asks for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.declaring import declared_drafter_tensors, declared_tensors
from tensorfold.contracts.family import CanPair, ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.testing.random_tensors import RandomTensors, ReplacedTensors
from tensorfold.testing.safetensors_writer import Stored, write_stored
from tensorfold.testing.tiny import write_texts

__all__ = [
    "declared_arrays",
    "declared_drafter_arrays",
    "declared_source",
    "write_declared",
    "write_declared_drafter",
]


def declared_source(
    family: ModelFamily, config: Mapping[str, Any], *, seed: int = 0, draft: bool = True
) -> ReplacedTensors:
    """Random values of every tensor, float32 but for the integers of hashes."""
    shapes = declared_tensors(family, ModelConfig(config, {}, "config.json"), draft=draft)
    return ReplacedTensors(RandomTensors(shapes, seed), _hashes(shapes))


def declared_arrays(
    family: ModelFamily, config: Mapping[str, Any], *, seed: int = 0, draft: bool = True
) -> dict[str, NDArray[Any]]:
    """The same as arrays."""
    shapes = declared_tensors(family, ModelConfig(config, {}, "config.json"), draft=draft)
    source = RandomTensors(shapes, seed)
    return {name: source.read(name).f32() for name in shapes} | _hashes(shapes)


def write_declared(
    folder: Path, family: ModelFamily, config: Mapping[str, Any], *, seed: int = 0, draft: bool = True
) -> Path:
    """A folder with such a checkpoint, whose config's vocabulary is the tiny tokenizer's."""
    return _written(folder, config, declared_arrays(family, config, seed=seed, draft=draft))


def declared_drafter_arrays(
    family: CanPair, config: Mapping[str, Any], *, seed: int = 0
) -> dict[str, NDArray[np.float32]]:
    """Random values of every tensor of a drafter, whose tokens are in no clusters."""
    shapes = declared_drafter_tensors(family, ModelConfig(config, {}, "config.json"))
    source = RandomTensors(shapes, seed)
    return {name: source.read(name).f32() for name in shapes}


def write_declared_drafter(folder: Path, family: CanPair, config: Mapping[str, Any], *, seed: int = 0) -> Path:
    """A folder with such a drafter."""
    return _written(folder, config, declared_drafter_arrays(family, config, seed=seed))


def _written(folder: Path, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Path:
    write_texts(folder, config)
    kinds = {"i": "I64", "f": "F32"}
    stored = {name: Stored(kinds[each.dtype.kind], each) for name, each in arrays.items()}
    write_stored(folder / "model.safetensors", stored)
    return folder


def _hashes(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.int64]]:
    """The integers of n-gram hashes, such that they share out the whole table."""
    found: dict[str, NDArray[np.int64]] = {}
    for name, shape in shapes.items():
        root, _, last = name.rpartition(".")
        if last == "layer_multipliers":
            found[name] = 2**50 + 2 * np.arange(shape[0]) + 1
        elif last in ("ngram_heads_vocab_sizes", "ngram_heads_offsets"):
            each = shapes[f"{root}.ngram_embedding.weight"][0] // shape[0]
            found[name] = np.full(shape, each) if last.endswith("sizes") else np.arange(shape[0]) * each
    return found

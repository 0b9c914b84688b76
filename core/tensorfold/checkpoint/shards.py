"""The weights of a Hugging Face folder: safetensors in one file or in shards, read as one set of tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final, cast

from numpy.typing import NDArray

from tensorfold.checkpoint.json_files import read_object
from tensorfold.checkpoint.safetensors import SafetensorsFile
from tensorfold.contracts.tensors import Dense, TensorInfo
from tensorfold.errors import CheckpointDamaged, CheckpointNotFound, CheckpointUnsupported

__all__ = ["INDEX", "PICKLES", "Shards", "listing"]

INDEX: Final = "model.safetensors.index.json"
SINGLE: Final = "model.safetensors"
_SHARD: Final = re.compile(r".*-\d{5}-of-(\d{5})\.safetensors")
_LISTED: Final = 30
PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt")


class Shards:
    """The tensors of a folder as they are stored; headers are read when they are first asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def headers(self) -> dict[str, bytes]:
        """Of each file, by its name."""
        return {shard.path.name: shard.header for shard in self._shards}

    def names(self) -> Iterable[str]:
        """Every tensor of every shard."""
        return self._where.keys()

    def info(self, name: str) -> TensorInfo:
        """What the shard's header says."""
        return self._where[name].info(name)

    def read(self, name: str) -> Dense:
        """A tensor, as a view of its file."""
        return self._where[name].read(name)

    def raw(self, name: str) -> NDArray[Any]:
        """A tensor of any type, as a view of its file."""
        return self._where[name].raw(name)

    @cached_property
    def _shards(self) -> tuple[SafetensorsFile, ...]:
        names = sorted(set(self._index.values())) if self._index else _unindexed(self.path)
        return tuple(SafetensorsFile(self.path / name) for name in names)

    @cached_property
    def _where(self) -> dict[str, SafetensorsFile]:
        """The shard of each tensor."""
        where: dict[str, SafetensorsFile] = {}
        twice: list[str] = []
        for shard in self._shards:
            for name in shard.names():
                first = where.setdefault(name, shard)
                if first is not shard:
                    twice.append(f"tensor {name} of {shard.path.name} is also in {first.path.name}")
        if twice:
            more = [f"and {len(twice) - _LISTED} more"] if len(twice) > _LISTED else []
            raise CheckpointDamaged(self.path, 0, "; ".join([*twice[:_LISTED], *more]))
        for name, file in self._index.items():
            if name not in where or where[name].path.name != file:
                raise CheckpointDamaged(self.path / INDEX, 0, f"tensor {name} is not in {file}")
        return where

    @cached_property
    def _index(self) -> dict[str, str]:
        """File name of each tensor; empty without an index."""
        path = self.path / INDEX
        if not path.exists():
            return {}
        value: Any = read_object(path).get("weight_map")
        files = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        if not files:
            raise CheckpointDamaged(path, 0, "there is no weight_map")
        for name, file in files.items():
            if not isinstance(file, str) or not _is_plain(file):
                raise CheckpointDamaged(path, 0, f"tensor {name} lies in {file!r}, which is not a file of this folder")
        missing = sorted(file for file in set(files.values()) if not (self.path / file).is_file())
        if missing:
            raise CheckpointDamaged(path, 0, f"files are missing: {', '.join(missing)}; download the folder again")
        return cast("dict[str, str]", files)


def _is_plain(name: str) -> bool:
    """Whether this names a file of the folder itself, on any system."""
    return name not in ("", ".", "..") and PurePosixPath(name).name == PureWindowsPath(name).name == name


def _unindexed(folder: Path) -> tuple[str, ...]:
    """The weights of a folder without an index: one file, or a complete set of numbered ones."""
    if (folder / SINGLE).is_file():
        return (SINGLE,)
    # Mistral's own layout stands beside the usual one in some folders.
    files = sorted(file.name for file in folder.glob("*.safetensors") if not file.name.startswith("consolidated"))
    shards = [match for match in map(_SHARD.fullmatch, files) if match is not None]
    if len(files) == 1 and not shards:
        return (files[0],)
    if files and len(shards) == len(files) and all(int(shard[1]) == len(files) for shard in shards):
        return tuple(files)
    if files:
        raise CheckpointUnsupported(
            f"{folder} has no {INDEX} that says which of its files belong together: {listing(files)}"
        )
    pickles = sorted(file.name for file in folder.iterdir() if file.suffix in PICKLES)
    if pickles:
        raise CheckpointUnsupported(
            f"{folder} has its weights in pickle files ({listing(pickles)}), which can run any code when they are read;"
            " take a version in safetensors, or convert it: transformers loads it and `save_pretrained` writes safetensors"
        )
    raise CheckpointNotFound(f"{folder} has a config.json and no *.safetensors file")


def listing(names: list[str], most: int = 8) -> str:
    shown = ", ".join(names[:most]) or "nothing"
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown

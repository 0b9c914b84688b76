"""Hugging Face folders: config.json, tokenizer files, and safetensors in one file or in shards."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final, cast

from tensorfold.checkpoint.base import Format
from tensorfold.checkpoint.folder_tokenizer import folder_tokenizer
from tensorfold.checkpoint.identity import FileMark, identity
from tensorfold.checkpoint.json_files import read_object
from tensorfold.checkpoint.safetensors import SafetensorsFile
from tensorfold.checkpoint.templates import folder_templates
from tensorfold.contracts.chat import Tokenizer
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.tensors import Dense, TensorInfo
from tensorfold.errors import CheckpointDamaged, CheckpointNotFound, CheckpointUnsupported

__all__ = ["PICKLES", "FolderCheckpoint"]

INDEX: Final = "model.safetensors.index.json"
SINGLE: Final = "model.safetensors"
_SHARD: Final = re.compile(r".*-\d{5}-of-(\d{5})\.safetensors")
PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt")
_IN_HEADER: Final = ("config.json", "generation_config.json", INDEX)
"""Small files whose content enters the identity."""


class FolderCheckpoint:
    """A folder; its configs are read, and its shards' headers when they are first asked for."""

    def __init__(self, path: Path) -> None:
        """Read the configs and templates.

        Raises:
            CheckpointNotFound: the folder has no config.json.
            CheckpointDamaged: a JSON file is corrupt.
            CheckpointUnsupported: the weights are quantized in a way that is not read.
        """
        self.path = path
        if not (path / "config.json").is_file():
            raise CheckpointNotFound(_not_a_checkpoint(path))
        values = read_object(path / "config.json")
        _refuse_quantized(path / "config.json", values)
        generation = read_object(path / "generation_config.json")
        self.config = ModelConfig(values, generation, str(path / "config.json"))
        self.templates = folder_templates(path)

    @property
    def format(self) -> Format:
        """Safetensors."""
        return "safetensors"

    @property
    def identity(self) -> str:
        """Over every file of the top folder, headers of the weights and content of the configs included."""
        return self._identity

    @cached_property
    def _identity(self) -> str:
        headers = {shard.path.name: shard.header for shard in self._shards}
        headers |= {name: (self.path / name).read_bytes() for name in _IN_HEADER if (self.path / name).is_file()}
        marks: list[FileMark] = []
        for file in self.path.iterdir():
            if file.is_file():
                status = file.stat()
                marks.append(FileMark(file.name, status.st_size, status.st_mtime_ns, headers.get(file.name, b"")))
        return identity(marks)

    def names(self) -> Iterable[str]:
        """Every tensor of every shard."""
        return self._where.keys()

    def info(self, name: str) -> TensorInfo:
        """What the shard's header says."""
        return self._where[name].info(name)

    def read(self, name: str) -> Dense:
        """A tensor, as a view of its file."""
        return self._where[name].read(name)

    def tokenizer(self) -> Tokenizer:
        """Built from the folder's tokenizer files."""
        return folder_tokenizer(self.path)

    @cached_property
    def _shards(self) -> tuple[SafetensorsFile, ...]:
        names = sorted(set(self._index.values())) if self._index else _unindexed(self.path)
        return tuple(SafetensorsFile(self.path / name) for name in names)

    @cached_property
    def _where(self) -> dict[str, SafetensorsFile]:
        """The shard of each tensor."""
        where: dict[str, SafetensorsFile] = {}
        for shard in self._shards:
            for name in shard.names():
                if name in where:
                    raise CheckpointDamaged(shard.path, 8, f"tensor {name} is also in {where[name].path.name}")
                where[name] = shard
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
            f"{folder} has no {INDEX} that says which of its files belong together: {_listing(files)}"
        )
    pickles = sorted(file.name for file in folder.iterdir() if file.suffix in PICKLES)
    if pickles:
        raise CheckpointUnsupported(
            f"{folder} has its weights in pickle files ({_listing(pickles)}), which can run any code when they are read;"
            " take a version in safetensors, or convert it: transformers loads it and `save_pretrained` writes safetensors"
        )
    raise CheckpointNotFound(f"{folder} has a config.json and no *.safetensors file")


def _refuse_quantized(path: Path, values: dict[str, Any]) -> None:
    for key in ("quantization_config", "quantization"):
        value = values.get(key)
        if value:
            method = cast("dict[str, Any]", value).get("quant_method") if isinstance(value, dict) else None
            raise CheckpointUnsupported(
                f"{path} has {key}{f' (quant_method {method!r})' if method else ''}: quantized safetensors are not read;"
                " take the unquantized checkpoint, or a .gguf file of it"
            )


def _not_a_checkpoint(path: Path) -> str:
    try:
        names = sorted(file.name for file in path.iterdir())
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"
    ggufs = [name for name in names if name.endswith(".gguf")]
    way_out = f"; to serve a GGUF file, give its path, such as {path / ggufs[0]}" if ggufs else ""
    return f"{path} has no config.json, so it is no Hugging Face checkpoint; it holds {_listing(names)}{way_out}"


def _listing(names: list[str], most: int = 8) -> str:
    shown = ", ".join(names[:most]) or "nothing"
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown

"""Hugging Face folders: config.json, tokenizer files, and safetensors in one file or in shards."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Final

from tensorfold.checkpoint.base import Format
from tensorfold.checkpoint.folder_tokenizer import folder_tokenizer
from tensorfold.checkpoint.identity import FileMark, identity
from tensorfold.checkpoint.json_files import read_object
from tensorfold.checkpoint.quantized.scheme import scheme_of
from tensorfold.checkpoint.quantized.tensors import QuantizedTensors
from tensorfold.checkpoint.shards import INDEX, PICKLES, Shards, listing
from tensorfold.checkpoint.templates import folder_templates
from tensorfold.contracts.chat import Tokenizer
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.tensors import Tensor, TensorInfo
from tensorfold.errors import CheckpointNotFound

__all__ = ["INDEX", "PICKLES", "FolderCheckpoint"]

_BESIDE: Final = "hf_quant_config.json"
_IN_HEADER: Final = ("config.json", "generation_config.json", _BESIDE, INDEX)
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
        generation = read_object(path / "generation_config.json")
        self.config = ModelConfig(values, generation, str(path / "config.json"))
        self._scheme = scheme_of(self.config, read_object(path / _BESIDE))
        self.templates = folder_templates(path)
        self._shards = Shards(path)

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
        headers = self._shards.headers
        headers |= {name: (self.path / name).read_bytes() for name in _IN_HEADER if (self.path / name).is_file()}
        marks: list[FileMark] = []
        for file in self.path.iterdir():
            if file.is_file():
                status = file.stat()
                marks.append(FileMark(file.name, status.st_size, status.st_mtime_ns, headers.get(file.name, b"")))
        return identity(marks)

    def names(self) -> Iterable[str]:
        """Every tensor of every shard; a quantized matrix is one."""
        return self._tensors.names()

    def info(self, name: str) -> TensorInfo:
        """What the shard's header says."""
        return self._tensors.info(name)

    def read(self, name: str) -> Tensor:
        """A tensor as a view of its file, or a quantized matrix."""
        return self._tensors.read(name)

    def tokenizer(self) -> Tokenizer:
        """Built from the folder's tokenizer files."""
        return folder_tokenizer(self.path)

    @cached_property
    def _tensors(self) -> Shards | QuantizedTensors:
        return self._shards if self._scheme is None else QuantizedTensors(self._shards, self._scheme)


def _not_a_checkpoint(path: Path) -> str:
    try:
        names = sorted(file.name for file in path.iterdir())
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"
    ggufs = [name for name in names if name.endswith(".gguf")]
    way_out = f"; to serve a GGUF file, give its path, such as {path / ggufs[0]}" if ggufs else ""
    return f"{path} has no config.json, so it is no Hugging Face checkpoint; it holds {listing(names)}{way_out}"

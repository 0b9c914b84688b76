"""What every checkpoint format offers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from tensorfold.contracts.chat import ChatTemplates, Tokenizer
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.tensors import Tensor, TensorInfo

__all__ = ["Checkpoint", "Format"]

Format: TypeAlias = Literal["safetensors", "gguf"]


class Checkpoint(Protocol):
    """A model's files, opened. Names, shapes and config are known; no weight has been read.

    Files stay mapped while anybody holds the checkpoint or an array that was read from it.
    """

    @property
    def path(self) -> Path:
        """The folder or file that was opened."""
        ...

    @property
    def format(self) -> Format:
        """How the weights are stored."""
        ...

    @property
    def config(self) -> ModelConfig:
        """`config.json` and `generation_config.json`, or what the file's metadata says under the same keys."""
        ...

    @property
    def identity(self) -> str:
        """A digest over file names, sizes, modification times and headers: equal for unchanged files."""
        ...

    @property
    def templates(self) -> ChatTemplates:
        """Chat templates and the control tokens that they may name."""
        ...

    def names(self) -> Iterable[str]:
        """Every tensor, by its Hugging Face name."""
        ...

    def info(self, name: str) -> TensorInfo:
        """What is known of a tensor without reading it. Raises `KeyError` for a name that is not among `names`."""
        ...

    def read(self, name: str) -> Tensor:
        """A tensor; its arrays may be read-only views of the file.

        Raises:
            CheckpointDamaged: its bytes cannot be what they are said to be.
            CheckpointUnsupported: it is stored in a type that is not read.
        """
        ...

    def tokenizer(self) -> Tokenizer:
        """The tokenizer, built anew.

        Raises:
            CheckpointDamaged: its files are corrupt.
            CheckpointUnsupported: there is none, or it is of a kind that is not built.
        """
        ...

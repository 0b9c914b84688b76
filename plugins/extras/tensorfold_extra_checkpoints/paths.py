"""A checkpoint's own path."""

from __future__ import annotations

import os
from pathlib import Path

from tensorfold.errors import CheckpointNotFound

__all__ = ["find_path"]


def find_path(name: str) -> Path | None:
    """The folder or file of this name, or None for what is no path.

    Raises:
        CheckpointNotFound: the name can only be a path, and nothing is there.
    """
    if not name:
        return None
    path = Path(os.path.expanduser(name))
    if path.exists():
        return path.resolve()
    # `models/llama` may be a name on the Hub; these cannot.
    if name.startswith((".", "~", os.sep)) or path.suffix in (".gguf", ".safetensors") or name.count("/") > 1:
        raise CheckpointNotFound(f"there is no folder or file {path.absolute()}")
    return None

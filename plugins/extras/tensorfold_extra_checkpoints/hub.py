"""`ORG/NAME`: from the Hugging Face Hub's cache on this machine, or downloaded."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Final

from tensorfold.errors import CheckpointDamaged, CheckpointError, CheckpointNotFound

__all__ = ["find_on_hub"]

_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")
_TEXTS: Final = ["*.json", "*.jinja"]
_WANTED: Final = [*_TEXTS, "*.safetensors", "tokenizer.model", "*.tiktoken", "merges.txt"]
_UNWANTED: Final = ["consolidated*", "original/*", "onnx/*"]
"""The same weights in other layouts."""


def find_on_hub(name: str, *, weights: bool = True) -> Path | None:
    """The folder of a model on the Hub; None for what is no such name. Shows its progress while it downloads.

    Without `weights`, its configs are enough, and nothing else is downloaded.

    Raises:
        CheckpointNotFound: the client is not installed, or the Hub does not give it.
    """
    if _NAME.fullmatch(name) is None:
        return None
    try:
        from huggingface_hub import snapshot_download  # pyright: ignore[reportUnknownVariableType]
    except ImportError as error:
        raise CheckpointNotFound(
            f"there is no folder {name}, and to look for it on the Hugging Face Hub needs huggingface-hub:"
            " pip install 'tensorfold[hub]'"
        ) from error
    wanted = partial(snapshot_download, name, allow_patterns=_WANTED if weights else _TEXTS, ignore_patterns=_UNWANTED)
    try:
        cached = Path(wanted(local_files_only=True))
    except Exception:  # noqa: BLE001 (not in the cache, or only in part: whatever the client calls it)
        cached = None
    if cached is not None and _is_complete(cached, weights):
        return cached
    try:
        return Path(wanted())
    except Exception as error:  # the client raises what its transport does
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise CheckpointNotFound(
            f"there is no folder {name}, it is not in the Hub's cache, and it cannot be downloaded: {reason}"
        ) from error


def _is_complete(folder: Path, weights: bool) -> bool:
    """Whether nothing is left to download; other faults are told when the checkpoint is opened."""
    # Imported here, since a plugin is loaded by commands that open no checkpoint.
    from tensorfold.checkpoint.folder import FolderCheckpoint

    try:
        checkpoint = FolderCheckpoint(folder)
        if weights:
            checkpoint.names()
    except (CheckpointNotFound, CheckpointDamaged):
        return False
    except CheckpointError:
        return True
    return True

"""`ORG/NAME`: from the Hugging Face Hub's cache on this machine, or downloaded."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from tensorfold.errors import CheckpointNotFound
from tensorfold_extra_checkpoints.complete import is_complete
from tensorfold_extra_checkpoints.hub_cache import HubCache
from tensorfold_extra_checkpoints.names import NAME, TEXTS, UNWANTED, WANTED

__all__ = ["find_on_hub"]


def find_on_hub(name: str, *, weights: bool = True) -> Path | None:
    """The folder of a model on the Hub; None for what is no such name. Shows its progress while it downloads.

    Without `weights`, its configs are enough, and nothing else is downloaded.

    Raises:
        CheckpointNotFound: the client is not installed, or the Hub does not give it.
    """
    if NAME.fullmatch(name) is None:
        return None
    if (current := HubCache(os.environ).current(name, weights=weights)) is not None:
        return current
    try:
        from huggingface_hub import snapshot_download  # pyright: ignore[reportUnknownVariableType]
    except ImportError as error:
        raise CheckpointNotFound(
            f"there is no folder {name}, and it is not in the Hub's cache: `tensorfold pull {name}` brings it, or"
            " pip install 'tensorfold[hub]' lets a start do so"
        ) from error
    patterns = [*(WANTED if weights else TEXTS)]
    wanted = partial(snapshot_download, name, allow_patterns=patterns, ignore_patterns=[*UNWANTED])
    try:
        cached = Path(wanted(local_files_only=True))
    except Exception:  # noqa: BLE001 (not in the cache, or only in part: whatever the client calls it)
        cached = None
    if cached is not None and is_complete(cached, weights=weights):
        return cached
    try:
        return Path(wanted())
    except Exception as error:  # the client raises what its transport does
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise CheckpointNotFound(
            f"there is no folder {name}, it is not in the Hub's cache, and it cannot be downloaded: {reason}"
        ) from error

"""`ORG/NAME`: from the Hugging Face Hub's cache on this machine, or downloaded as `tensorfold pull` does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tensorfold.errors import CheckpointNotFound
from tensorfold_extra_checkpoints.hub_cache import HubCache
from tensorfold_extra_checkpoints.names import NAME

__all__ = ["find_on_hub"]

OFFLINE: Final = "HF_HUB_OFFLINE"
"""Keeps every program of the Hub's from the network."""


def find_on_hub(name: str, *, weights: bool = True) -> Path | None:
    """The folder of a model on the Hub; None for what is no such name. Shows its progress while it downloads.

    Without `weights`, its configs are enough, and nothing else is downloaded.

    Raises:
        CheckpointNotFound: it is not in the cache, and the Hub does not give it.
        CheckpointError: it is given, and cannot be used.
    """
    if NAME.fullmatch(name) is None:
        return None
    if (current := HubCache(os.environ).current(name, weights=weights)) is not None:
        return current
    missing = f"there is no folder {name}, it is not in the Hub's cache, and"
    if os.environ.get(OFFLINE, "").upper() in ("1", "ON", "YES", "TRUE"):
        raise CheckpointNotFound(f"{missing} {OFFLINE} keeps it from being downloaded")
    # Imported here, since a plugin is loaded by commands that download nothing.
    from tensorfold_extra_checkpoints.pull import Pull
    from tensorfold_extra_checkpoints.showing import Lines

    try:
        return Pull(os.environ, None, Lines()).run(name, weights=weights)
    except CheckpointNotFound as error:
        raise CheckpointNotFound(f"{missing} {error}") from None

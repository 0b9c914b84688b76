"""`ORG/NAME`: from the Hugging Face Hub's cache on this machine, or downloaded as `tensorfold pull` does."""

from __future__ import annotations

import os
from pathlib import Path

from tensorfold.errors import CheckpointNotFound
from tensorfold_extra_checkpoints.hub_cache import HubCache
from tensorfold_extra_checkpoints.names import NAME

__all__ = ["find_on_hub"]


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
    # Imported here, since a plugin is loaded by commands that download nothing.
    from tensorfold_extra_checkpoints.pull import Pull
    from tensorfold_extra_checkpoints.showing import Lines

    try:
        return Pull(os.environ, None, Lines()).run(name, weights=weights)
    except CheckpointNotFound as error:
        raise CheckpointNotFound(f"there is no folder {name}, it is not in the Hub's cache, and {error}") from None

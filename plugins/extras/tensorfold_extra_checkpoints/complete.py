"""Whether a checkpoint's folder holds all of it."""

from __future__ import annotations

from pathlib import Path

from tensorfold.errors import CheckpointDamaged, CheckpointError, CheckpointNotFound

__all__ = ["is_complete"]


def is_complete(folder: Path, *, weights: bool = True) -> bool:
    """Whether nothing is left to download, or nothing but weights; other faults are told when it is opened."""
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

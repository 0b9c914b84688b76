"""Opening a drafter that is a checkpoint of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tensorfold.checkpoint.folder import FolderCheckpoint
from tensorfold.checkpoint.open import OpenCheckpoint
from tensorfold.contracts.family import CanPair, Drafter, ModelFamily
from tensorfold.errors import CheckpointNotFound, CheckpointUnsupported

__all__ = ["OpenDrafter", "find_drafter", "open_drafter"]


@dataclass(frozen=True, slots=True)
class OpenDrafter:
    """A drafter's checkpoint, and whose it is."""

    checkpoint: FolderCheckpoint
    family: CanPair
    name: str
    """The family's."""
    drafter: Drafter


def find_drafter(path: Path, families: Iterable[ModelFamily]) -> OpenDrafter | None:
    """The drafter in a folder, by its config alone; None for what is no folder, or no drafter of any family.

    Raises:
        CheckpointError: the config cannot be read, or asks for what is not run.
    """
    if not path.is_dir():
        return None
    folder = FolderCheckpoint(path)
    for family in families:
        if isinstance(family, CanPair) and (found := family.drafter(folder.config)) is not None:
            return OpenDrafter(folder, family, family.name, found)
    return None


def open_drafter(path: Path, target: OpenCheckpoint, *, weights: bool = True) -> OpenDrafter:
    """Open the folder of a drafter, for a checkpoint that is open: no family is asked but that one's.

    Without `weights`, the folder may have its configs alone.

    Raises:
        CheckpointNotFound, CheckpointDamaged: as `open_checkpoint`.
        CheckpointUnsupported: the family has no drafters, or not this one for this checkpoint.
    """
    family = target.family
    if not isinstance(family, CanPair):
        raise CheckpointUnsupported(f"the {family.name} family has no drafters in checkpoints of their own, as {path}")
    if path.is_file():
        raise CheckpointUnsupported(
            f"{path} is a file, and drafters are read from folders: config.json and safetensors"
        )
    try:
        checkpoint = FolderCheckpoint(path)
        family.check_drafter(target.checkpoint.config, checkpoint.config)
        drafter = family.drafter(checkpoint.config)
        if weights:
            # Missing files and corrupt headers come out now, not when a weight is read.
            checkpoint.names()
    except OSError as error:
        raise CheckpointNotFound(f"{error.filename or path} cannot be read: {error.strerror or error}") from error
    if drafter is None:
        raise TypeError(f"the {family.name} family pairs {path}, and does not know it as a drafter")
    return OpenDrafter(checkpoint, family, family.name, drafter)

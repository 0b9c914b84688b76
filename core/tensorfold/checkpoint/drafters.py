"""Opening a drafter that is a checkpoint of its own: a folder or a GGUF file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tensorfold.checkpoint.base import Checkpoint
from tensorfold.checkpoint.folder import FolderCheckpoint
from tensorfold.checkpoint.gguf import GgufCheckpoint, GgufFiles
from tensorfold.checkpoint.open import OpenCheckpoint, gguf_files
from tensorfold.contracts.family import CanPair, Drafter, ModelFamily
from tensorfold.errors import CheckpointNotFound, CheckpointUnsupported

__all__ = ["OpenDrafter", "find_drafter", "open_drafter"]


@dataclass(frozen=True, slots=True)
class OpenDrafter:
    """A drafter's checkpoint, and whose it is."""

    checkpoint: Checkpoint
    family: CanPair
    name: str
    """The family's."""
    drafter: Drafter


def find_drafter(path: Path, families: Iterable[ModelFamily]) -> OpenDrafter | None:
    """The drafter in a folder or a GGUF file, by its config alone; None where there is none of any family.

    Raises:
        CheckpointError: the config cannot be read, or asks for what is not run.
    """
    if path.is_dir():
        opened: FolderCheckpoint | GgufFiles = FolderCheckpoint(path)
    elif path.is_file():
        opened = gguf_files(path)
    else:
        return None
    for family in families:
        if not isinstance(family, CanPair):
            continue
        checkpoint = opened if isinstance(opened, FolderCheckpoint) else _read_by(family, opened)
        if checkpoint is not None and (found := family.drafter(checkpoint.config)) is not None:
            return OpenDrafter(checkpoint, family, family.name, found)
    return None


def open_drafter(path: Path, target: OpenCheckpoint, *, weights: bool = True) -> OpenDrafter:
    """Open a drafter for a checkpoint that is open: no family is asked but that one's.

    Without `weights`, a folder may have its configs alone.

    Raises:
        CheckpointNotFound, CheckpointDamaged: as `open_checkpoint`.
        CheckpointUnsupported: the family has no drafters, or not this one for this checkpoint.
    """
    family = target.family
    if not isinstance(family, CanPair):
        raise CheckpointUnsupported(f"the {family.name} family has no drafters in checkpoints of their own, as {path}")
    try:
        checkpoint = _gguf(path, family) if path.is_file() else FolderCheckpoint(path)
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


def _gguf(path: Path, family: ModelFamily) -> GgufCheckpoint:
    files = gguf_files(path)
    checkpoint = _read_by(family, files)
    if checkpoint is None:
        read = ", ".join(rules.architecture for rules in family.gguf) or "none"
        raise CheckpointUnsupported(
            f"{path}: general.architecture is {files.architecture!r}, and the {family.name} family reads {read}"
        )
    return checkpoint


def _read_by(family: ModelFamily, files: GgufFiles) -> GgufCheckpoint | None:
    """By the family's rules for such files, if it has any."""
    rules = next((rules for rules in family.gguf if rules.architecture == files.architecture), None)
    return None if rules is None else GgufCheckpoint(files, rules)

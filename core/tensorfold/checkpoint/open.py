"""Opening a checkpoint: which format its files have, and which family runs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tensorfold.checkpoint.base import Checkpoint
from tensorfold.checkpoint.folder import PICKLES, FolderCheckpoint
from tensorfold.checkpoint.gguf import GgufCheckpoint, GgufFiles
from tensorfold.contracts.family import Claim, ModelFamily
from tensorfold.errors import CheckpointNotFound, CheckpointUnsupported

__all__ = ["OpenCheckpoint", "claim_folder", "gguf_files", "open_checkpoint"]


@dataclass(frozen=True, slots=True)
class OpenCheckpoint:
    """A checkpoint, and who runs it."""

    checkpoint: Checkpoint
    family: ModelFamily
    claim: Claim
    others: tuple[tuple[str, Claim], ...] = ()
    """Families that would run it as well, and their lower claims."""


def open_checkpoint(path: Path, families: Iterable[ModelFamily], *, weights: bool = True) -> OpenCheckpoint:
    """Open a folder or a `.gguf` file and choose its family: every family is asked, and the highest score runs it.

    Config and headers are read, and no weight; without `weights`, a folder may have its configs alone.

    Raises:
        CheckpointNotFound: there is nothing there, or it may not be read.
        CheckpointDamaged: a file is truncated, corrupt or hostile.
        CheckpointUnsupported: no family claims it, or the one that knows it does not run it.
    """
    try:
        opened = _open(path, tuple(families))
        if weights:
            # Missing files and corrupt headers come out now, not when a weight is read.
            opened.checkpoint.names()
        return opened
    except OSError as error:
        raise CheckpointNotFound(f"{error.filename or path} cannot be read: {error.strerror or error}") from error


def claim_folder(path: Path, families: Iterable[ModelFamily]) -> OpenCheckpoint:
    """Which family would run a folder, by its config alone: no weights need be there.

    Raises:
        CheckpointError: as `open_checkpoint`, of the config.
    """
    folder, asked = FolderCheckpoint(path), tuple(families)
    return _choose([(folder, family) for family in asked], asked, _folder_facts(folder))


def gguf_files(path: Path) -> GgufFiles:
    """A file, which must be GGUF.

    Raises:
        CheckpointError: as `GgufFiles`, and it is a file of another format.
    """
    _refuse_other_files(path)
    return GgufFiles(path)


def _open(path: Path, asked: Sequence[ModelFamily]) -> OpenCheckpoint:
    if path.is_dir():
        opened = claim_folder(path, asked)
    elif path.is_file():
        files = gguf_files(path)
        candidates = [
            (GgufCheckpoint(files, rules), family)
            for family in asked
            for rules in family.gguf
            if rules.architecture == files.architecture
        ]
        opened = _choose(candidates, asked, f"general.architecture {files.architecture!r} in {path}")
    else:
        raise CheckpointNotFound(f"there is no folder or file {path}")
    return opened


def _choose(
    candidates: Iterable[tuple[Checkpoint, ModelFamily]], asked: Sequence[ModelFamily], looked_at: str
) -> OpenCheckpoint:
    """The candidate with the highest claim; of equal ones the first."""
    found: list[OpenCheckpoint] = []
    refusals: list[CheckpointUnsupported] = []
    for checkpoint, family in candidates:
        try:
            claim = family.claim(checkpoint.config)
        except CheckpointUnsupported as error:
            refusals.append(error)
        else:
            if claim is not None:
                found.append(OpenCheckpoint(checkpoint, family, claim))
    if found:
        best, *others = sorted(found, key=lambda opened: -opened.claim.score)
        return replace(best, others=tuple((other.family.name, other.claim) for other in others))
    if refusals:
        raise refusals[0]
    names = ", ".join(_described(family) for family in asked) or "none is installed"
    raise CheckpointUnsupported(
        f"no model family runs this checkpoint: looked at {looked_at}; families asked: {names}."
        " `tensorfold plugins` lists what is installed; `--plugin` adds a family"
    )


def _folder_facts(folder: FolderCheckpoint) -> str:
    config = folder.config
    architectures = ", ".join(config.architectures) or "none"
    return f"model_type {config.model_type!r} and architectures {architectures} in {config.where}"


def _described(family: ModelFamily) -> str:
    read = ", ".join(rules.architecture for rules in family.gguf)
    return f"{family.name} (GGUF {read})" if read else family.name


def _refuse_other_files(path: Path) -> None:
    if path.suffix == ".safetensors":
        raise CheckpointUnsupported(f"{path} is a part of a checkpoint: give its folder, {path.parent}")
    if path.suffix in PICKLES:
        raise CheckpointUnsupported(
            f"{path} is a pickle file, which can run any code when it is read: give a folder with safetensors"
        )

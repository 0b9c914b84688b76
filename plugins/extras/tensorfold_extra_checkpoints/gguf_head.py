"""Whether a GGUF file that is not here yet could be run: its header stands at its beginning, and says what it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Final

from tensorfold.contracts.family import ModelFamily
from tensorfold.errors import CheckpointError, CheckpointUnsupported
from tensorfold_extra_checkpoints.hub_files import Hub, RemoteFile

__all__ = ["HEAD", "check_gguf_head"]

HEAD: Final = 32 * 1024 * 1024
"""Bytes that hold the header of nearly every file; a vocabulary of 250,000 tokens takes about 15 MiB."""
_LATER_PART: Final = re.compile(r".*-(?!00001)\d{5}-of-\d{5}\.gguf")


def check_gguf_head(
    hub: Hub, url: str, file: RemoteFile, families: Sequence[ModelFamily], head: int = HEAD
) -> str | None:
    """What the file is for, in a line, by its first bytes; None: they do not tell, and it has to be tried.

    Raises:
        CheckpointUnsupported: nothing runs it.
    """
    if file.size <= head or _LATER_PART.fullmatch(file.path):
        return None
    try:
        with hub.open(url) as response:
            beginning = response.read(head)
    except OSError:
        return None  # the download tells what is wrong
    with TemporaryDirectory(prefix="tensorfold-") as folder:
        stand_in = Path(folder) / PurePosixPath(file.path).name
        with stand_in.open("wb") as sparse:
            sparse.write(beginning)
            sparse.truncate(file.size)
        return _told(stand_in, file, families)


def _told(stand_in: Path, file: RemoteFile, families: Sequence[ModelFamily]) -> str | None:
    from tensorfold.checkpoint.drafters import find_drafter
    from tensorfold.checkpoint.gguf_reader import GgufFile
    from tensorfold.checkpoint.open import open_checkpoint

    try:
        types = {record.type for record in GgufFile(stand_in).tensors.values()}
        if (found := find_drafter(stand_in, families)) is not None:
            told = f"{file.path} drafts for {found.drafter.target}: give it as --draft-model"
        else:
            opened = open_checkpoint(stand_in, families)
            told = f"{file.path} is run by {opened.family.name}: {opened.claim.reason}"
    except CheckpointUnsupported as error:
        raise CheckpointUnsupported(str(error).replace(str(stand_in), file.path)) from None
    except CheckpointError:
        return None
    if unread := sorted(each.name for each in types if not each.is_read):
        raise CheckpointUnsupported(
            f"{file.path} has tensors of type {', '.join(unread)}, which are not read: choose another"
        )
    return told

"""What a drafter's checkpoint is, from its config: for whom it drafts, its size, and what of it is read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tensorfold.checkpoint.drafters import OpenDrafter
from tensorfold.cli.describing_files import ITEMSIZES, Files, dtype_of, files_of
from tensorfold.compute.declaring import count_drafter_parameters
from tensorfold.compute.loading import check_drafter

__all__ = ["DrafterDescription", "describe_drafter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterDescription:
    """A drafter, described. It has no states: it reads those of its target."""

    opened: OpenDrafter
    parameters: int
    dtype: str
    """The type that the weights were made in, or are computed in when they are quantized."""
    files: Files | None
    """None: only the config is there."""

    @property
    def weights_bytes(self) -> int:
        """As stored; of a config alone, all weights in its type."""
        if self.files is not None and self.files.weights is not None:
            return self.files.weights.bytes
        return self.parameters * ITEMSIZES[self.dtype]


def describe_drafter(opened: OpenDrafter) -> DrafterDescription:
    """Read no weight, and of the files only headers, where they are there.

    Raises:
        CheckpointError: the config or a file cannot be read.
    """
    config = opened.checkpoint.config
    return DrafterDescription(
        opened=opened,
        parameters=count_drafter_parameters(opened.family, config),
        dtype=dtype_of(config),
        files=files_of(opened.checkpoint, partial(check_drafter, opened.family, config)),
    )

"""Where checkpoints are found: paths, the embedded default model, and the Hugging Face Hub."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tensorfold import hookimpl
from tensorfold.contracts.commands import Command
from tensorfold.contracts.local import LocalCheckpoint
from tensorfold_extra_checkpoints.default_model import find_default_model, list_default_model
from tensorfold_extra_checkpoints.hub import find_on_hub
from tensorfold_extra_checkpoints.paths import find_path

__all__ = ["tensorfold_commands", "tensorfold_find_checkpoint", "tensorfold_list_checkpoints"]


@hookimpl(trylast=True)
def tensorfold_find_checkpoint(name: str, weights: bool) -> Path | None:
    """A path that is there, the default model, or `ORG/NAME` from the Hub's cache or the Hub."""
    # What lies on the disk goes before a name.
    return find_path(name) or find_default_model(name) or find_on_hub(name, weights=weights)


@hookimpl
def tensorfold_list_checkpoints() -> Iterable[LocalCheckpoint]:
    """The default model, and what is in the Hub's cache."""
    from tensorfold_extra_checkpoints.hub_cache import HubCache

    yield from list_default_model()
    yield from HubCache(os.environ).checkpoints()


@hookimpl
def tensorfold_commands() -> Iterable[Command]:
    """`tensorfold pull`."""
    from tensorfold_extra_checkpoints.command import pull_command

    yield Command(pull_command())

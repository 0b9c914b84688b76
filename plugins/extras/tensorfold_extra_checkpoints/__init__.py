"""Where checkpoints are found: paths, the embedded default model, and the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

from tensorfold import hookimpl
from tensorfold_extra_checkpoints.default_model import find_default_model
from tensorfold_extra_checkpoints.hub import find_on_hub
from tensorfold_extra_checkpoints.paths import find_path

__all__ = ["tensorfold_find_checkpoint"]


@hookimpl(trylast=True)
def tensorfold_find_checkpoint(name: str, weights: bool) -> Path | None:
    """A path that is there, the default model, or `ORG/NAME` from the Hub's cache or the Hub."""
    # What lies on the disk goes before a name.
    return find_path(name) or find_default_model(name) or find_on_hub(name, weights=weights)

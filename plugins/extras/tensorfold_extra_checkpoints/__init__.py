"""Where checkpoints are found: paths, the embedded default model, and the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

from tensorfold import hookimpl
from tensorfold_extra_checkpoints.default_model import find_default_model
from tensorfold_extra_checkpoints.hub import find_on_hub
from tensorfold_extra_checkpoints.paths import find_path

__all__ = ["tensorfold_find_checkpoint"]

_SOURCES = (find_path, find_default_model, find_on_hub)
"""In this order: what lies on the disk goes before a name."""


@hookimpl(trylast=True)
def tensorfold_find_checkpoint(name: str) -> Path | None:
    """A path that is there, the default model, or `ORG/NAME` from the Hub's cache or the Hub."""
    answers = (source(name) for source in _SOURCES)
    return next((path for path in answers if path is not None), None)

"""Nemotron-H up to Nemotron 3.5: Mamba-2 mixers, attention without positions, and feed-forwards, one block a layer."""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold import hookimpl
from tensorfold.contracts.examples import Example
from tensorfold.contracts.family import ModelFamily

__all__ = ["tensorfold_examples", "tensorfold_model_families"]


@hookimpl
def tensorfold_model_families() -> Iterable[ModelFamily]:
    """The family of this plugin."""
    # Imported when a model is served: every command imports this module.
    from tensorfold_model_nemotron.family import NemotronFamily

    return (NemotronFamily(),)


@hookimpl
def tensorfold_examples() -> Iterable[Example]:
    """What `tensorfold check` tries it with."""
    from tensorfold_model_nemotron.examples import EXAMPLES

    return EXAMPLES

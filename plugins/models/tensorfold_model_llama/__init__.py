"""Llama and the dense models of its shape: llama, mistral, qwen2, qwen3."""

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
    from tensorfold_model_llama.family import LlamaFamily

    return (LlamaFamily(),)


@hookimpl
def tensorfold_examples() -> Iterable[Example]:
    """What `tensorfold check` tries it with."""
    from tensorfold_model_llama.examples import EXAMPLES

    return EXAMPLES

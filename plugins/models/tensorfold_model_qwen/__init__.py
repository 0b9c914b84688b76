"""Qwen3.5 and its successors up to Qwen3.8: gated delta nets with a gated attention layer now and then, dense or MoE."""

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
    from tensorfold_model_qwen.family import QwenFamily

    return (QwenFamily(),)


@hookimpl
def tensorfold_examples() -> Iterable[Example]:
    """What `tensorfold check` tries it with."""
    from tensorfold_model_qwen.examples import EXAMPLES

    return EXAMPLES

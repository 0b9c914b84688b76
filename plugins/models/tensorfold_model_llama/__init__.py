"""Llama and the dense models of its shape: llama, mistral, qwen2, qwen3."""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold import hookimpl
from tensorfold_model_llama.family import LlamaFamily

__all__ = ["LlamaFamily", "tensorfold_model_families"]


@hookimpl
def tensorfold_model_families() -> Iterable[LlamaFamily]:
    """The family of this plugin."""
    return (LlamaFamily(),)

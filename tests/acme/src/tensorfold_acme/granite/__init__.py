"""IBM's Granite 3, dense: a Llama whose embeddings, scores, residuals and logits are multiplied by constants."""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold import hookimpl
from tensorfold.contracts.family import ModelFamily


@hookimpl
def tensorfold_model_families() -> Iterable[ModelFamily]:
    """The family of this plugin."""
    # Imported when a model is served: every command imports this module.
    from tensorfold_acme.granite.family import GraniteFamily

    return (GraniteFamily(),)

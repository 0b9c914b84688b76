"""What the contract of families tries this one with: tiny models of each of its kinds."""

from __future__ import annotations

from typing import Any, Final

from tensorfold.contracts.examples import FamilyExample
from tensorfold.testing.family_configs import FAMILY_CONFIGS

__all__ = ["EXAMPLES"]

_REFUSED: Final[dict[str, Any]] = {
    "mlp_hidden_act": "gelu",
    "mamba_hidden_act": "gelu",
    "attention_bias": True,
    "tie_word_embeddings": True,
    "num_nextn_predict_layers": 2,
    "hybrid_override_pattern": "MX",
}

EXAMPLES = tuple(
    FamilyExample(family="nemotron", config=FAMILY_CONFIGS[kind], refused=_REFUSED, name=kind)
    for kind in ("nemotron_h",)
)

"""What the contract of families tries this one with: tiny models of each of its kinds."""

from __future__ import annotations

from typing import Any, Final

from tensorfold.contracts.examples import FamilyExample
from tensorfold.testing.family_configs import FAMILY_CONFIGS

__all__ = ["EXAMPLES"]

_REFUSED: Final[dict[str, Any]] = {
    "hidden_activation": "gelu",
    "attn_logit_softcapping": 50.0,
    "num_attention_heads": 5,
    "final_logit_softcapping": 0.0,
    "use_bidirectional_attention": "all",
}

EXAMPLES = tuple(
    FamilyExample(
        family="gemma",
        config=FAMILY_CONFIGS[kind],
        refused=_REFUSED,
        name=kind,
        steering=("*.layer_scalar", "*.per_expert_scale"),
    )
    for kind in (
        "gemma3",
        "gemma4",
    )
)

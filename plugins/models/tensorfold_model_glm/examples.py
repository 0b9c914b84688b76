"""What the contract of families tries this one with: tiny models of each of its kinds."""

from __future__ import annotations

from typing import Any, Final

from tensorfold.contracts.examples import FamilyExample
from tensorfold.testing.family_configs import FAMILY_CONFIGS

__all__ = ["EXAMPLES"]

_REFUSED: Final[dict[str, Any]] = {
    "hidden_act": "gelu",
    "scoring_func": "softmax",
    "attention_bias": True,
    "num_nextn_predict_layers": 2,
    "index_topk": 0,
}

EXAMPLES = tuple(
    FamilyExample(family="glm", config=FAMILY_CONFIGS[kind], refused=_REFUSED, name=kind)
    for kind in (
        "glm_moe_dsa",
        "glm5_next",
    )
)

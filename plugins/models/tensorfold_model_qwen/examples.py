"""What the contract of families tries this one with: tiny models of each of its kinds."""

from __future__ import annotations

from typing import Any, Final

from tensorfold.contracts.examples import FamilyExample
from tensorfold.testing.family_configs import FAMILY_CONFIGS

__all__ = ["EXAMPLES"]

_REFUSED: Final[dict[str, Any]] = {
    "hidden_act": "gelu",
    "attn_output_gate": False,
    "mtp_num_hidden_layers": 2,
    "linear_num_key_heads": 3,
}

EXAMPLES = tuple(
    FamilyExample(family="qwen", config=FAMILY_CONFIGS[kind], refused=_REFUSED, name=kind)
    for kind in (
        "qwen3_5",
        "qwen3_5_moe",
    )
)

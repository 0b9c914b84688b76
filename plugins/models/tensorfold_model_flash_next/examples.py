"""What the contract of families tries this one with: tiny models of each of its kinds."""

from __future__ import annotations

from typing import Any, Final

from tensorfold.contracts.examples import FamilyExample
from tensorfold.testing.family_configs import FAMILY_CONFIGS

__all__ = ["EXAMPLES"]

_REFUSED: Final[dict[str, Any]] = {
    "hidden_act": "gelu",
    "output_gate_type": "tanh",
    "mtp_num_hidden_layers": 2,
    "indexer_kv_heads": 2,
    "ple_layer_ids": [1],
}

EXAMPLES = tuple(
    FamilyExample(
        family="flash_next", config=FAMILY_CONFIGS[kind], refused=_REFUSED, name=kind, steering=("*.ple_embedding.*",)
    )
    for kind in ("qwen4_exp",)
)

"""What the contract of families tries this one with: tiny models of each of its kinds."""

from __future__ import annotations

from typing import Any, Final

from tensorfold.contracts.examples import FamilyExample
from tensorfold.testing.family_configs import FAMILY_CONFIGS

__all__ = ["EXAMPLES"]

_REFUSED: Final[dict[str, Any]] = {
    "hidden_act": "selu",
    "num_local_experts": 4,
    "rope_scaling": {"rope_type": "own"},
    "vocab_size": 0,
}

EXAMPLES = tuple(
    FamilyExample(family="llama", config=FAMILY_CONFIGS[kind], refused=_REFUSED, name=kind) for kind in ("llama",)
)

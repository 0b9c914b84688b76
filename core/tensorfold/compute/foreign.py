"""Features that some models have and most have not: a config that asks for one is refused, unless its family reads it.

New checkpoints of a known model type gain features before their type gains a name. What this table knows is refused by
the feature's key, and never run as if it were not there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from tensorfold.contracts.model_config import ModelConfig

__all__ = ["FOREIGN", "refuse_foreign", "refuse_rotation"]

FOREIGN: Final[Mapping[str, tuple[str | bool | int | None, ...]]] = MappingProxyType(
    {
        # scores and logits
        "attn_logit_softcapping": (None,),
        "final_logit_softcapping": (None,),
        "router_logit_softcapping": (None,),
        "moe_router_logit_softcapping": (None,),
        "clip_qkv": (None,),
        # who sees whom
        "use_sliding_window": (None, False),
        "use_bidirectional_attention": (None, False),
        "is_causal": (None, True),
        # where the positions are
        "position_embedding_type": (None, "rope", "rotary", "default"),
        "alibi": (None, False),
        # multipliers
        "embedding_multiplier": (None, 1),
        "residual_multiplier": (None, 1),
        "attention_multiplier": (None, 1),
        "logits_scaling": (None, 1),
        # how a layer is built
        "use_parallel_residual": (None, False),
        "parallel_attn": (None, False),
        "norm_type": (None, "rmsnorm", "rms_norm"),
        # who chooses experts
        "scoring_func": (None, "softmax"),
        "topk_method": (None, "greedy"),
        "n_group": (None, 1),
    }
)
"""Keys, and the values at which they ask for nothing."""


def refuse_foreign(config: ModelConfig, own: Collection[str] = ()) -> None:
    """Refuse what no family runs but the one that reads the key itself: those of `own`.

    Raises:
        CheckpointUnsupported: naming the key.
    """
    for key, allowed in FOREIGN.items():
        if key not in own:
            config.require(key, *allowed)


def refuse_rotation(config: ModelConfig) -> None:
    """For models whose positions are not rotated: a section that asks for more than the default rule is refused.

    Raises:
        CheckpointUnsupported: naming the key.
    """
    for key in ("rope_parameters", "rope_scaling"):
        section = config.section(key)
        if section is not None:
            section.require("rope_type", None, "default")
            section.require("type", None, "default")

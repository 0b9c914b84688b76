"""A config of a known model type that asks for a feature that is not run is refused by that feature's key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensorfold.checkpoint.open import open_checkpoint
from tensorfold.contracts.family import Claim, ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported
from tensorfold.testing.declared_checkpoint import write_declared
from tensorfold.testing.family_configs import FAMILY_CONFIGS
from tensorfold.testing.tiny import write_texts
from tensorfold_model_flash_next.family import FlashNextFamily
from tensorfold_model_gemma.family import GemmaFamily
from tensorfold_model_glm.family import GlmFamily
from tensorfold_model_llama.family import LlamaFamily
from tensorfold_model_nemotron.family import NemotronFamily
from tensorfold_model_qwen.family import QwenFamily

FAMILIES: tuple[ModelFamily, ...] = (
    LlamaFamily(),
    QwenFamily(),
    FlashNextFamily(),
    GlmFamily(),
    NemotronFamily(),
    GemmaFamily(),
)
ODD = "odd-thing"

EVERYWHERE: dict[str, dict[str, Any]] = {
    "attn_logit_softcapping": {"attn_logit_softcapping": 30.0},
    "router_logit_softcapping": {"router_logit_softcapping": 30.0},
    "clip_qkv": {"clip_qkv": 8.0},
    "position_embedding_type": {"position_embedding_type": "alibi"},
    "is_causal": {"is_causal": False},
    "use_bidirectional_attention": {"use_bidirectional_attention": True},
    "residual_multiplier": {"residual_multiplier": 0.2},
    "logits_scaling": {"logits_scaling": 8.0},
    "use_parallel_residual": {"use_parallel_residual": True},
    "norm_type": {"norm_type": "layernorm"},
    "scoring_func": {"scoring_func": ODD},
    "num_hidden_layers": {"num_hidden_layers": 3_000_000_000},
    "layer": {"layer_types": [ODD] * 3, "layers_block_type": [ODD] * 6},
}
"""What every model must refuse; the key names what the message must."""

ROPE = {"rope_parameters": {"rope_type": ODD, "rope_theta": 10000.0}}
OWN: dict[str, dict[str, dict[str, Any]]] = {
    "llama": {"hidden_act": {"hidden_act": ODD}},
    "qwen3_5": {"hidden_act": {"hidden_act": ODD}, "output_gate_type": {"output_gate_type": ODD}},
    "qwen3_5_moe": {"routed_scaling_factor": {"routed_scaling_factor": 2.5}, "n_group": {"n_group": 2}},
    "qwen4_exp": {"hidden_act": {"hidden_act": ODD}, "indexer_kv_heads": {"indexer_kv_heads": 2}},
    "glm_moe_dsa": {"hidden_act": {"hidden_act": ODD}, "topk_method": {"topk_method": ODD}},
    "glm5_next": {"hidden_act": {"hidden_act": ODD}, "mhc": {"mhc": False}},
    "nemotron_h": {"mlp_hidden_act": {"mlp_hidden_act": ODD}, "mamba_hidden_act": {"mamba_hidden_act": ODD}},
    "gemma3": {"hidden_activation": {"hidden_activation": ODD}},
    "gemma4": {"hidden_activation": {"hidden_activation": ODD}},
    "gemma4, experts": {"top_k_experts": {"top_k_experts": 99}},
    "gemma4, E": {"num_kv_shared_layers": {"num_kv_shared_layers": 4}},
}
CASES = [
    (kind, named, changes)
    for kind in FAMILY_CONFIGS
    for named, changes in {**EVERYWHERE, "rope": ROPE, **OWN[kind]}.items()
]


def family_of(kind: str) -> ModelFamily:
    given = ModelConfig(FAMILY_CONFIGS[kind], {}, "config.json")
    return next(family for family in FAMILIES if family.claim(given) is not None)


@pytest.mark.parametrize(("kind", "named", "changes"), CASES, ids=[f"{kind}, {named}" for kind, named, _ in CASES])
def test_a_feature_that_is_not_run_is_refused_by_its_key(kind: str, named: str, changes: dict[str, Any]) -> None:
    """Unknown rotations, activations, routing, masks, multipliers and layers."""
    config = ModelConfig({**FAMILY_CONFIGS[kind], **changes}, {}, "config.json")
    with pytest.raises(CheckpointUnsupported, match=rf"config\.json.*{named}"):
        family_of(kind).claim(config)


@pytest.mark.parametrize("kind", FAMILY_CONFIGS)
def test_keys_that_ask_for_nothing_are_no_reason_to_refuse(kind: str) -> None:
    """As configs write them that spell every default out."""
    neutral = {
        "is_causal": True,
        "use_sliding_window": False,
        "attn_logit_softcapping": None,
        "residual_multiplier": 1.0,
        "position_embedding_type": "rope",
        "clip_qkv": None,
    }
    claim = family_of(kind).claim(ModelConfig({**FAMILY_CONFIGS[kind], **neutral}, {}, "config.json"))
    assert claim is not None and claim.score == 100 and "model_type" in claim.reason


@pytest.mark.parametrize("kind", FAMILY_CONFIGS)
@pytest.mark.parametrize(
    ("key", "value"), [("max_position_embeddings", 10**400), ("eps", float("nan")), ("layer_types", [["odd"]])]
)
def test_what_no_model_can_have_is_refused_by_its_key(kind: str, key: str, value: Any) -> None:
    """Numbers that are none, or have more digits than any, and lists of lists: never another error than a refusal."""
    config = FAMILY_CONFIGS[kind]
    if key == "eps":
        key = "layer_norm_epsilon" if kind == "nemotron_h" else "rms_norm_eps"
    if key == "layer_types":
        value = value * int(config.get("num_hidden_layers", 6))
    with pytest.raises(CheckpointUnsupported, match=rf"config\.json.*{key}"):
        family_of(kind).geometry(ModelConfig({**config, key: value}, {}, "config.json"))


def test_the_refusal_of_the_family_that_knows_the_model_is_the_one_that_is_told(tmp_path: Path) -> None:
    """Not that nobody claims it."""
    write_texts(tmp_path, {**FAMILY_CONFIGS["nemotron_h"], "mlp_hidden_act": ODD})
    with pytest.raises(CheckpointUnsupported, match="mlp_hidden_act is 'odd-thing'"):
        open_checkpoint(tmp_path, FAMILIES)


class Guessing(LlamaFamily):
    """Runs whatever has layers, it thinks."""

    @property
    def name(self) -> str:
        return "guessing"

    def claim(self, config: ModelConfig) -> Claim | None:
        return Claim(10, "it has layers") if "num_hidden_layers" in config.values else None


@pytest.mark.parametrize("order", [1, -1])
def test_the_best_claim_runs_and_the_others_are_told(tmp_path: Path, order: int) -> None:
    """By score, whichever family is asked first."""
    write_declared(tmp_path, QwenFamily(), FAMILY_CONFIGS["qwen3_5"])
    opened = open_checkpoint(tmp_path, [*FAMILIES, Guessing()][::order])
    assert (opened.family.name, opened.claim.score) == ("qwen", 100)
    assert opened.others == (("guessing", Claim(10, "it has layers")),)

"""What the GLM family claims, refuses and declares, from configs alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tensorfold.compute.declaring import count_parameters
from tensorfold.contracts.family import Geometry
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.states import KV, Conv, IndexKeys, Latent, Recent, Recurrent, StateSpec
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_glm.family import GlmFamily

FAMILY = GlmFamily()

SHARED: dict[str, Any] = {
    "vocab_size": 154880,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "routed_scaling_factor": 2.5,
    "kv_lora_rank": 512,
    "v_head_dim": 256,
    "index_head_dim": 128,
    "index_n_heads": 32,
    "index_topk": 2048,
    "first_k_dense_replace": 3,
    "hidden_act": "silu",
    "attention_bias": False,
    "max_position_embeddings": 1048576,
    "rms_norm_eps": 1e-5,
    "num_nextn_predict_layers": 1,
    "tie_word_embeddings": False,
}

GLM: dict[str, Any] = {
    "model_type": "glm_moe_dsa",
    **SHARED,
    "hidden_size": 6144,
    "num_hidden_layers": 78,
    "n_routed_experts": 256,
    "q_lora_rank": 2048,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "qk_head_dim": 256,
    "index_topk_freq": 4,
    "index_skip_topk_offset": 3,
    "rope_interleave": True,
    "indexer_rope_interleave": True,
    "rope_parameters": {"rope_theta": 8000000, "rope_type": "default"},
    "eos_token_id": [154820, 154827, 154829],
}
"""GLM-5.3."""

FLASH_TEXT: dict[str, Any] = {
    "model_type": "glm5_next_text",
    **SHARED,
    "hidden_size": 4096,
    "num_hidden_layers": 45,
    "n_routed_experts": 288,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 256,
    "qk_rope_head_dim": 0,
    "index_kpool": 4,
    "index_kpool_compress": True,
    "index_kpool_always_select_tail": True,
    "indexer_types": ["full"] * 45,
    "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 43,
    "linear_attn_config": {"num_heads": 64, "head_dim": 128, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0},
    "mhc": True,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "swiglu_limit": 10.0,
    "eos_token_id": [154820, 154827],
}
FLASH: dict[str, Any] = {"model_type": "glm5_next", "text_config": FLASH_TEXT, "vision_config": {"depth": 24}}
"""GLM-5.3-Flash, whose `mlp_layer_types` go on to the draft head's layer."""


def config(values: Mapping[str, Any], generation: Mapping[str, Any] | None = None, **changes: Any) -> ModelConfig:
    return ModelConfig({**values, **changes}, generation or {}, "config.json")


def flash(**changes: Any) -> ModelConfig:
    return config(FLASH, text_config={**FLASH_TEXT, **changes})


def token_bytes(states: Mapping[str, StateSpec]) -> float:
    """Of one position in 16-bit states, the draft head's aside."""
    total = 0.0
    for spec in states.values():
        match spec:
            case Latent(latent, rope, group="main"):
                total += 2 * (latent + rope)
            case IndexKeys(dim, pool, group="main"):
                total += 2 * dim / pool
            case KV():
                raise AssertionError("latent attention keeps no keys and values")
            case _:
                pass
    return total


def count(geometry: Geometry, kind: type[StateSpec]) -> int:
    """States of the target of one kind."""
    return sum(isinstance(spec, kind) and spec.group == "main" for spec in geometry.states.values())


# ---- claims -------------------------------------------------------------------------------------------------


def test_a_known_model_type_is_claimed_first() -> None:
    """Score 100, with the type as the reason and what of the checkpoint is left."""
    for values, model_type in ((GLM, "glm_moe_dsa"), (FLASH, "glm5_next"), (FLASH_TEXT, "glm5_next_text")):
        claim = FAMILY.claim(config(values))
        assert claim is not None and claim.score == 100 and model_type in claim.reason
        assert ("vision" in claim.reason) == ("vision_config" in values)


def test_a_model_type_of_its_own_is_claimed_by_its_architecture() -> None:
    """Fine-tunes rename the type and keep the class."""
    renamed = config(GLM, model_type="my_glm", architectures=["GlmMoeDsaForCausalLM"])
    claim = FAMILY.claim(renamed)
    assert claim is not None and claim.score == 50 and "GlmMoeDsaForCausalLM" in claim.reason
    assert FAMILY.geometry(renamed).layers == 78
    assert FAMILY.claim(config(GLM, model_type="deepseek_v32")) is None


# ---- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("scoring_func", "softmax"),
        ("topk_method", "greedy"),
        ("moe_layer_freq", 2),
        ("num_nextn_predict_layers", 2),
        ("num_key_value_heads", 8),
        ("qk_head_dim", 64),
        ("q_lora_rank", None),
        ("n_group", 7),
        ("num_experts_per_tok", 1000),
        ("mlp_layer_types", ["dense"]),
        ("mlp_layer_types", ["moe"] * 78),
    ],
)
def test_what_is_not_run_is_refused_by_the_name_of_its_key(key: str, value: Any) -> None:
    """In either model, before any weight is read, with the file that says so."""
    for changed in (config(GLM, **{key: value}), flash(**{key: value})):
        with pytest.raises(CheckpointUnsupported, match=rf"config\.json.*{key}"):
            FAMILY.claim(changed)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rope_interleave", False),
        ("indexer_rope_interleave", False),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
        ("rope_parameters", {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6}),
        ("qk_rope_head_dim", 0),
        ("index_kpool", 4),
        ("index_head_dim", 32),
        ("indexer_types", ["shared"] * 78),
        ("indexer_types", ["none"] * 78),
        ("index_topk_pattern", "FX" * 39),
        ("layer_types", ["linear_attention"] * 78),
    ],
)
def test_what_glm_does_not_run_is_refused(key: str, value: Any) -> None:
    """Of GLM-5.3 alone."""
    with pytest.raises(CheckpointUnsupported, match=rf"config\.json.*{key}"):
        FAMILY.claim(config(GLM, **{key: value}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("qk_rope_head_dim", 64),
        ("index_kpool", 1),
        ("index_kpool", 3),
        ("index_topk", 2047),
        ("index_kpool_compress", False),
        ("index_kpool_always_select_tail", False),
        ("mhc", False),
        ("indexer_types", ["full", "full", "full", "shared"] + ["full"] * 41),
        ("layer_types", ["sliding_attention"] * 45),
    ],
)
def test_what_flash_does_not_run_is_refused(key: str, value: Any) -> None:
    """Of GLM-5.3-Flash alone, with the section in which the key stands."""
    with pytest.raises(CheckpointUnsupported, match=rf"config\.json.*text_config\.{key}"):
        FAMILY.claim(flash(**{key: value}))


# ---- what is declared ---------------------------------------------------------------------------------------


def test_glm_declares_the_published_sizes() -> None:
    """743.38 billion weights without the draft head, 93 KiB a position, 21 of 78 layers with an indexer."""
    geometry, counted = FAMILY.geometry(config(GLM)), count_parameters(FAMILY, config(GLM))
    assert (round(counted.main / 1e9, 2), round(counted.draft / 1e9, 2)) == (743.38, 9.95)
    assert token_bytes(geometry.states) == 93 * 1024
    assert (count(geometry, Latent), count(geometry, IndexKeys)) == (78, 21)
    assert geometry.window == 1048576 and geometry.stop_ids == {154820, 154827, 154829}
    assert {spec for spec in geometry.states.values() if spec.group == "draft"} == {
        Latent(512, 64, "draft"),
        IndexKeys(128, 1, "draft"),
    }


def test_flash_declares_the_published_sizes() -> None:
    """313 billion weights without draft head and vision tower; 34 linear layers, and 11 whose indexers pool four keys.

    16.5 KiB a position is what keeping key and gate of every position would take; a key a pool takes less.
    """
    geometry, counted = FAMILY.geometry(config(FLASH)), count_parameters(FAMILY, config(FLASH))
    assert (round(counted.main / 1e9, 2), round(counted.draft / 1e9, 2)) == (313.33, 7.43)
    assert token_bytes(geometry.states) == 11 * 2 * (512 + 128 / 4)
    assert round(11 * 2 * (512 + 2 * 128 + 1) / 1024, 1) == 16.5
    kinds = (Latent, IndexKeys, Recent, Conv, Recurrent)
    assert [count(geometry, kind) for kind in kinds] == [11, 11, 11, 34, 34]
    assert geometry.states["layers.0.delta"] == Recurrent((64, 128, 128))
    assert geometry.states["layers.3.index.keys"] == IndexKeys(128, 4)
    assert geometry.hidden == 4096 and geometry.layers == 45 and geometry.stop_ids == {154820, 154827}


def test_layers_choose_by_any_of_the_spellings() -> None:
    """A list of types, a pattern of letters or of names, or a number of layers between choices: the same choice."""
    spelled = FAMILY.geometry(config(GLM)).states
    types = ["full" if layer < 3 or (layer - 2) % 4 == 0 else "shared" for layer in range(78)]
    letters = "".join(each[0].upper() for each in types)
    others: list[dict[str, Any]] = [
        {"indexer_types": types},
        {"index_topk_pattern": letters},
        {"index_topk_pattern": types},
    ]
    for each in others:
        other = config({**GLM, "index_topk_freq": 1}, **each)
        assert FAMILY.geometry(other).states == spelled


def test_a_config_without_a_draft_head_declares_none() -> None:
    """Neither its states nor its weights."""
    without = config(GLM, num_nextn_predict_layers=0)
    geometry = FAMILY.geometry(without)
    assert count_parameters(FAMILY, without).draft == 0
    assert not [name for name, spec in geometry.states.items() if spec.group == "draft"]


def test_end_tokens_and_sampling_come_from_every_config() -> None:
    """The outer config, the text section and the generation config together."""
    both = config(FLASH, {"eos_token_id": [5], "temperature": 1.0, "top_p": 0.95}, eos_token_id=7)
    geometry = FAMILY.geometry(both)
    assert geometry.stop_ids == {5, 7, 154820, 154827}
    assert (geometry.sampling.temperature, geometry.sampling.top_p) == (1.0, 0.95)

"""What the Nemotron family claims, refuses and declares, from configs alone."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tensorfold.compute.declaring import count_parameters
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.states import KV, Conv, Recurrent
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_nemotron.config import nemotron_config
from tensorfold_model_nemotron.family import NemotronFamily

FAMILY = NemotronFamily()

SMALL: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "hybrid_override_pattern": "MEM*E-",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "mamba_num_heads": 4,
    "mamba_head_dim": 8,
    "n_groups": 2,
    "ssm_state_size": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "moe_shared_expert_intermediate_size": 24,
    "layer_norm_epsilon": 1e-5,
}

NEMOTRON_3_5_LIGHTNING: dict[str, Any] = {
    "architectures": ["NemotronHForCausalLM"],
    "model_type": "nemotron_h",
    "attention_bias": False,
    "eos_token_id": 2,
    "chunk_size": 128,
    "conv_kernel": 4,
    "head_dim": 128,
    "hidden_size": 2688,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "intermediate_size": 1856,
    "layer_norm_epsilon": 1e-05,
    "mamba_head_dim": 64,
    "mamba_hidden_act": "silu",
    "mamba_num_heads": 64,
    "mamba_proj_bias": False,
    "mamba_ssm_cache_dtype": "float32",
    "max_position_embeddings": 262144,
    "mlp_bias": False,
    "mlp_hidden_act": "relu2",
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "mtp_layers_block_type": ["attention", "moe"],
    "num_nextn_predict_layers": 1,
    "n_group": 1,
    "n_groups": 8,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "norm_eps": 1e-05,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 52,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 1.0,
    "rope_theta": 10000,
    "routed_scaling_factor": 2.5,
    "ssm_state_size": 128,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "use_bias": False,
    "use_conv_bias": True,
    "vocab_size": 131072,
}


def config(
    model_type: str | None = "nemotron_h", generation: dict[str, Any] | None = None, **values: Any
) -> ModelConfig:
    named = {} if model_type is None else {"model_type": model_type}
    return ModelConfig({**SMALL, **named, **values}, generation or {}, "config.json")


# ---- claims -------------------------------------------------------------------------------------------------


def test_it_is_claimed_by_type_then_by_architecture_then_by_shape() -> None:
    """A config that names another type is left to others."""
    claims = [
        FAMILY.claim(config()),
        FAMILY.claim(config("my_hybrid", architectures=["NemotronHForCausalLM"])),
        FAMILY.claim(config(None)),
    ]
    assert [claim.score for claim in claims if claim is not None] == [100, 50, 20]
    assert all(claim is not None and claim.reason for claim in claims)
    assert FAMILY.claim(config("bamba")) is None
    assert FAMILY.claim(config(None, architectures=["Mamba2ForCausalLM"])) is None
    assert FAMILY.claim(ModelConfig({"hidden_size": 32}, {}, "config.json")) is None


# ---- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mlp_hidden_act", "gelu"),
        ("mamba_hidden_act", "gelu"),
        ("mamba_proj_bias", True),
        ("attention_bias", True),
        ("sliding_window", 64),
        ("tie_word_embeddings", True),
        ("n_shared_experts", 2),
        ("num_nextn_predict_layers", 2),
        ("hybrid_override_pattern", "MX"),
        ("hybrid_override_pattern", ""),
        ("layers_block_type", ["mamba", "rwkv"]),
        ("mtp_layers_block_type", []),
        ("num_hidden_layers", 7),
        ("num_key_value_heads", 3),
        ("attention_head_dim", 8),
        ("n_groups", 3),
        ("n_group", 3),
        ("topk_group", 2),
        ("num_experts_per_tok", 9),
        ("time_step_limit", [0.1]),
        ("time_step_limit", [0.1, "much"]),
        ("time_step_limit", [1.0, 0.1]),
        ("moe_latent_size", 0),
        ("vocab_size", None),
    ],
)
def test_what_is_not_run_is_refused_by_the_name_of_its_key(key: str, value: Any) -> None:
    """Before any weight is read, with the file that says so."""
    with pytest.raises(CheckpointUnsupported, match=rf"config\.json.*{key}"):
        FAMILY.claim(config(**{"num_nextn_predict_layers": 1, key: value}))


# ---- what is declared ---------------------------------------------------------------------------------------


def test_nemotron_3_5_lightning_has_the_size_and_the_states_that_are_known_of_it() -> None:
    """31.58 billion weights, 6 KiB a token in bfloat16, 47 MiB a sequence beside them, two layers that draft."""
    given = ModelConfig(NEMOTRON_3_5_LIGHTNING, {"eos_token_id": [2, 11]}, "config.json")
    geometry = FAMILY.geometry(given)
    assert round(count_parameters(FAMILY, given).main / 1e9, 2) == 31.58
    assert (geometry.layers, geometry.window, geometry.vocabulary) == (52, 262144, 131072)
    assert geometry.stop_ids == {2, 11}
    assert geometry.capabilities == {"tools", "thinking"}
    main = [spec for spec in geometry.states.values() if spec.group == "main"]
    token = sum(spec.heads * (spec.k_dim + spec.v_dim) * 2 for spec in main if isinstance(spec, KV))
    recurrent = sum(4 * math.prod(spec.shape) for spec in main if isinstance(spec, Recurrent))
    tails = sum(2 * spec.keep * spec.channels for spec in main if isinstance(spec, Conv))
    assert token == 6 << 10
    assert recurrent == 23 * 2 << 20 and round((recurrent + tails) / 2**20) == 47
    assert geometry.states["mtp.layers.0.kv"] == KV(2, 128, 128, group="draft")


def test_every_spelling_of_the_layers_is_read() -> None:
    """A pattern, the names of two generations, and the key that other models have."""
    expected = FAMILY.geometry(config())
    old = ["mamba", "moe", "mamba", "attention", "moe", "mlp"]
    new = ["linear_attention", "moe", "linear_attention", "full_attention", "moe", "mlp"]
    spellings: list[dict[str, Any]] = [{"layers_block_type": old}, {"layers_block_type": new}, {"layer_types": new}]
    for spelling in spellings:
        assert FAMILY.geometry(config(hybrid_override_pattern=None, **spelling)) == expected
    assert list(expected.states) == ["layers.0.conv", "layers.0.ssd", "layers.2.conv", "layers.2.ssd", "layers.3.kv"]


def test_the_draft_head_has_the_layers_that_the_config_names() -> None:
    """Attention and experts when it names none; their states are in a group of their own, their weights apart."""
    without = count_parameters(FAMILY, config())
    assert without.draft == 0
    listed: dict[str, Any] = {"mtp_layers_block_type": ["full_attention", "moe"]}
    spelled: dict[str, Any] = {"mtp_hybrid_override_pattern": "*E"}
    nothing: dict[str, Any] = {}
    for spelling in (nothing, spelled, listed):
        given = config(num_nextn_predict_layers=1, **spelling)
        head, counted = FAMILY.geometry(given), count_parameters(FAMILY, given)
        assert counted.main == without.main and counted.draft > 0
        assert [name for name, spec in head.states.items() if spec.group == "draft"] == ["mtp.layers.0.kv"]
    mamba = FAMILY.geometry(config(num_nextn_predict_layers=1, mtp_hybrid_override_pattern="M"))
    assert {name for name, spec in mamba.states.items() if spec.group == "draft"} == {
        "mtp.layers.0.conv",
        "mtp.layers.0.ssd",
    }


def test_steps_are_bounded_by_their_limit_alone() -> None:
    """Not by the range of the first biases. JSON has no number for infinity, and transformers writes an object."""
    assert nemotron_config(config(time_step_min=0.001, time_step_max=0.1)).step_limits == (0.0, math.inf)
    for infinity in (math.inf, {"__float__": "Infinity"}):
        assert nemotron_config(config(time_step_limit=[0.5, infinity])).step_limits == (0.5, math.inf)
    assert nemotron_config(config(mamba_dt_limit=[0.5, 2])).step_limits == (0.5, 2.0)

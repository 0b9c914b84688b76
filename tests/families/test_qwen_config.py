"""What the Qwen family claims, refuses and declares, from configs alone."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tensorfold.compute.declaring import count_parameters, declared_tensors
from tensorfold.contracts.family import Geometry
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.states import KV, Conv, Recurrent
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_qwen.config import VARIANTS, qwen_config
from tensorfold_model_qwen.family import QwenFamily

FAMILY = QwenFamily()

SMALL: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
    "max_position_embeddings": 128,
}

QWEN_3_8_27B: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "text_config": {
        "attention_bias": False,
        "attn_output_gate": True,
        "eos_token_id": 248044,
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_act": "silu",
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144,
        "model_type": "qwen3_5_text",
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "num_attention_heads": 24,
        "num_hidden_layers": 64,
        "num_key_value_heads": 4,
        "output_gate_type": "swish",
        "partial_rotary_factor": 0.25,
        "rms_norm_eps": 1e-06,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
            "partial_rotary_factor": 0.25,
            "rope_theta": 10000000,
            "rope_type": "default",
        },
        "tie_word_embeddings": False,
        "vocab_size": 248320,
    },
    "tie_word_embeddings": False,
    "vision_config": {"depth": 27, "hidden_size": 1152, "model_type": "qwen3_5"},
}


def config(
    model_type: str | None = "qwen3_5_text", generation: dict[str, Any] | None = None, **values: Any
) -> ModelConfig:
    named = {} if model_type is None else {"model_type": model_type}
    return ModelConfig({**SMALL, **named, **values}, generation or {}, "config.json")


def attends(geometry: Geometry) -> list[int]:
    """The layers with keys and values."""
    attention = [name for name, spec in geometry.states.items() if isinstance(spec, KV) and spec.group == "main"]
    return [int(name.split(".")[1]) for name in attention]


# ---- claims -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", ["qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"])
def test_a_known_model_type_is_claimed_first(model_type: str) -> None:
    """Score 100, with the type as the reason."""
    claim = FAMILY.claim(config(model_type))
    assert claim is not None and claim.score == 100 and model_type in claim.reason


def test_a_model_type_of_its_own_is_claimed_by_its_architecture() -> None:
    """Fine-tunes rename the type and keep the class."""
    claim = FAMILY.claim(config("my_qwen", architectures=["Qwen3_5MoeForCausalLM"]))
    assert claim is not None and claim.score == 50 and "Qwen3_5MoeForCausalLM" in claim.reason


def test_a_config_without_a_name_is_claimed_by_its_shape() -> None:
    """Only when it names neither type nor architecture, and before families with plainer keys; with experts it is a
    mixture."""
    claim = FAMILY.claim(config(None))
    assert claim is not None and claim.score == 20
    sizes: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    mixture, dense = declared_tensors(FAMILY, config(None, **sizes)), declared_tensors(FAMILY, config(None))
    assert mixture.keys() != dense.keys() and "model.layers.0.mlp.experts.3.up_proj.weight" in mixture
    assert FAMILY.claim(config("qwen3_next")) is None
    assert FAMILY.claim(config(None, architectures=["Qwen3NextForCausalLM"])) is None
    assert FAMILY.claim(ModelConfig({"hidden_size": 32}, {}, "config.json")) is None


def test_a_tower_is_left_and_told_of() -> None:
    """The reason says so; the checkpoint can see, which the capabilities say."""
    given = ModelConfig(QWEN_3_8_27B, {}, "config.json")
    claim = FAMILY.claim(given)
    assert claim is not None and "vision tower left" in claim.reason
    assert FAMILY.geometry(given).capabilities == {"tools", "thinking", "vision"}
    assert FAMILY.geometry(config()).capabilities == {"tools", "thinking"}


# ---- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("attn_output_gate", False),
        ("output_gate_type", "sigmoid"),
        ("mamba_ssm_dtype", "bfloat16"),
        ("mtp_num_hidden_layers", 2),
        ("mtp_use_dedicated_embeddings", True),
        ("num_experts", 8),
        ("ple_layer_ids", [2]),
        ("layer_types", ["full_attention"] * 7),
        ("layer_types", ["sliding_attention"] * 8),
        ("num_key_value_heads", 3),
        ("linear_num_key_heads", 3),
        ("rope_parameters", {"rope_type": "mrope"}),
        ("rope_parameters", {"rope_theta": 1e4, "mrope_section": [1, 1, 1]}),
        ("rope_parameters", {"rope_theta": 1e4, "mrope_section": [2]}),
        ("num_hidden_layers", 0),
        ("vocab_size", None),
        ("intermediate_size", "48"),
    ],
)
def test_what_is_not_run_is_refused_by_the_name_of_its_key(key: str, value: Any) -> None:
    """In a text model's config, and in the text section of one with a tower."""
    text = {**SMALL, key: value}
    nested = {"model_type": "qwen3_5", "text_config": text}
    with pytest.raises(CheckpointUnsupported, match=rf"config\.json.*{key}"):
        FAMILY.claim(ModelConfig({"model_type": "qwen3_5_text", **text}, {}, "config.json"))
    with pytest.raises(CheckpointUnsupported, match=rf"config\.json.*text_config.*{key}"):
        FAMILY.claim(ModelConfig(nested, {}, "config.json"))


@pytest.mark.parametrize(
    ("key", "value"),
    [("norm_topk_prob", False), ("num_experts_per_tok", 9), ("mlp_only_layers", [1]), ("decoder_sparse_step", 2)],
)
def test_experts_that_are_not_run_are_refused_by_name(key: str, value: Any) -> None:
    """Routing of other models."""
    sizes = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    with pytest.raises(CheckpointUnsupported, match=key):
        FAMILY.claim(config("qwen3_5_moe_text", **{**sizes, key: value}))


# ---- what is declared ---------------------------------------------------------------------------------------


def test_qwen_3_8_27b_has_the_size_and_the_states_that_are_known_of_it() -> None:
    """26.90 billion weights, 64 KiB a token in bfloat16, 147 MiB a sequence beside them, one layer that drafts."""
    given = ModelConfig(QWEN_3_8_27B, {"eos_token_id": [248046, 248044], "temperature": 0.6}, "config.json")
    geometry = FAMILY.geometry(given)
    assert round(count_parameters(FAMILY, given).main / 1e9, 2) == 26.90
    assert (geometry.layers, geometry.window, geometry.vocabulary) == (64, 262144, 248320)
    assert geometry.stop_ids == {248044, 248046}
    assert geometry.sampling.temperature == 0.6
    main = [spec for spec in geometry.states.values() if spec.group == "main"]
    token = sum(spec.heads * (spec.k_dim + spec.v_dim) * 2 for spec in main if isinstance(spec, KV))
    recurrent = sum(4 * math.prod(spec.shape) for spec in main if isinstance(spec, Recurrent))
    tails = sum(2 * spec.keep * spec.channels for spec in main if isinstance(spec, Conv))
    assert token == 64 << 10
    assert recurrent == 48 * 3 << 20 and round((recurrent + tails) / 2**20) == 147
    assert geometry.states["mtp.layers.0.kv"] == KV(4, 256, 256, group="draft")
    assert attends(geometry)[:4] == [3, 7, 11, 15]


def test_layers_attend_by_list_or_by_interval() -> None:
    """Every fourth when the config says nothing."""
    assert attends(FAMILY.geometry(config())) == [3, 7]
    assert attends(FAMILY.geometry(config(full_attention_interval=2))) == [1, 3, 5, 7]
    types = ["full_attention"] + ["linear_attention"] * 7
    assert attends(FAMILY.geometry(config(layer_types=types))) == [0]


def test_a_draft_head_is_declared_when_the_config_tells_of_it() -> None:
    """Its weights are counted apart, its state is in a group of its own."""
    given = config(mtp_num_hidden_layers=1)
    without, counted, head = count_parameters(FAMILY, config()), count_parameters(FAMILY, given), FAMILY.geometry(given)
    assert without.draft == 0 and counted.main == without.main
    assert counted.draft > 0
    assert {name for name, spec in head.states.items() if spec.group == "draft"} == {"mtp.layers.0.kv"}


def test_a_head_is_tied_by_the_outer_key_first() -> None:
    """transformers goes by the whole model's config, where there is one."""
    untied = count_parameters(FAMILY, config()).main
    table = 96 * 32

    def parameters(outer: dict[str, Any], inner: dict[str, Any]) -> int:
        values = {"model_type": "qwen3_5", "text_config": {**SMALL, **inner}, **outer}
        return count_parameters(FAMILY, ModelConfig(values, {}, "config.json")).main

    assert count_parameters(FAMILY, config(tie_word_embeddings=True)).main == untied - table
    assert parameters({}, {"tie_word_embeddings": True}) == untied - table
    assert parameters({"tie_word_embeddings": False}, {"tie_word_embeddings": True}) == untied
    assert parameters({"tie_word_embeddings": True}, {}) == untied - table


def test_a_quarter_of_a_head_is_rotated_when_the_config_does_not_say() -> None:
    """A factor in the section or beside it counts before that."""
    rules: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e7}

    def pairs(**values: Any) -> int:
        return len(qwen_config(config(**values), VARIANTS[0]).rope.inv_freq)

    assert pairs() == pairs(rope_parameters=rules) == 2
    assert pairs(rope_parameters=rules, partial_rotary_factor=0.5) == 4
    assert pairs(rope_parameters={**rules, "partial_rotary_factor": 1.0}, partial_rotary_factor=0.5) == 8


def test_yarn_stretches_the_window() -> None:
    """A checkpoint that was told to run YaRN runs to the pretraining's length times the factor."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "rope_theta": 1e7}
    assert FAMILY.geometry(config(rope_parameters=yarn)).window == 512

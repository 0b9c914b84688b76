"""What the Flash Next family claims, refuses and declares, from configs alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tensorfold.compute.declaring import count_parameters
from tensorfold.contracts.family import Geometry
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.states import KV, Conv, IndexKeys, Recent, Recurrent, StateSpec
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_flash_next.family import FlashNextFamily
from tensorfold_model_flash_next.primes import primes_from

FAMILY = FlashNextFamily()

TEXT: dict[str, Any] = {
    "model_type": "qwen4_exp_text",
    "vocab_size": 248320,
    "hidden_size": 2560,
    "num_hidden_layers": 48,
    "full_attention_interval": 4,
    "num_attention_heads": 24,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "attention_bias": False,
    "hidden_act": "silu",
    "hc_count": 4,
    "hc_lowrank": 320,
    "indexer_budget": 2048,
    "indexer_compress_ratio": 4,
    "indexer_head_dim": 128,
    "indexer_kv_heads": 1,
    "indexer_n_heads": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_value_head_dim": 128,
    "mamba_ssm_dtype": "float32",
    "moe_intermediate_size": 640,
    "shared_expert_intermediate_size": 640,
    "norm_topk_prob": True,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "heads_per_ngram": 8,
    "ngram_size": 3,
    "ngram_vocab_size_base": 20000000,
    "make_ngram_vocab_size_divisible_by": 128,
    "ple_conv_kernel_size": 4,
    "ple_embed_dim": 2560,
    "ple_layer_ids": [2],
    "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": False,
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "mrope_interleaved": True,
        "mrope_section": [11, 11, 10],
        "partial_rotary_factor": 0.25,
        "rope_theta": 10000000,
        "rope_type": "default",
    },
    "eos_token_id": 248044,
}
FLASH_NEXT: dict[str, Any] = {
    "model_type": "qwen4_exp",
    "tie_word_embeddings": False,
    "text_config": TEXT,
    "vision_config": {"depth": 27},
}
"""Qwen3.8-Flash-Next."""


def config(generation: Mapping[str, Any] | None = None, **changes: Any) -> ModelConfig:
    return ModelConfig({**FLASH_NEXT, "text_config": {**TEXT, **changes}}, generation or {}, "config.json")


def count(geometry: Geometry, kind: type[StateSpec]) -> int:
    """States of the target of one kind."""
    return sum(isinstance(spec, kind) and spec.group == "main" for spec in geometry.states.values())


# ---- claims -------------------------------------------------------------------------------------------------


def test_a_known_model_type_is_claimed_first() -> None:
    """Score 100, with the type as the reason and what of the checkpoint is left."""
    claim = FAMILY.claim(config())
    assert claim is not None and claim.score == 100
    assert "qwen4_exp" in claim.reason and "vision tower left" in claim.reason
    text = FAMILY.claim(ModelConfig(TEXT, {}, "config.json"))
    assert text is not None and text.score == 100 and "vision" not in text.reason


def test_a_model_type_of_its_own_is_claimed_by_its_architecture() -> None:
    """Fine-tunes rename the type and keep the class."""
    values = {**FLASH_NEXT, "model_type": "mine", "architectures": ["Qwen4ExpForConditionalGeneration"]}
    claim = FAMILY.claim(ModelConfig(values, {}, "config.json"))
    assert claim is not None and claim.score == 50
    assert FAMILY.claim(ModelConfig({**FLASH_NEXT, "model_type": "qwen3_5_moe"}, {}, "config.json")) is None


# ---- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("output_gate_type", "tanh"),
        ("attention_bias", True),
        ("indexer_kv_heads", 2),
        ("indexer_compress_ratio", 1),
        ("indexer_compress_ratio", 12),
        ("indexer_budget", 2047),
        ("indexer_budget", None),
        ("indexer_head_dim", 32),
        ("mtp_num_hidden_layers", 2),
        ("mtp_use_dedicated_embeddings", True),
        ("layer_types", ["sliding_attention"] * 48),
        ("layer_types", ["linear_attention"] * 4),
        ("num_key_value_heads", 5),
        ("linear_num_key_heads", 5),
        ("num_experts_per_tok", 513),
        ("ple_layer_ids", [4]),
        ("ple_layer_ids", [0]),
        ("ple_layer_ids", [49]),
        ("ple_layer_ids", ["2"]),
        ("ple_layer_ids", 2),
        ("ple_embed_dim", 2561),
        ("eos_token_id", None),
        ("rope_type", {"rope_type": "own"}),
    ],
)
def test_what_is_not_run_is_refused_by_the_name_of_its_key(key: str, value: Any) -> None:
    """Before any weight is read, with the file and the section that say so."""
    changes = {"rope_parameters": value} if key == "rope_type" else {key: value}
    with pytest.raises(CheckpointUnsupported, match=rf"config\.json.*text_config\..*{key}"):
        FAMILY.claim(config(**changes))


# ---- what is declared ---------------------------------------------------------------------------------------


def test_it_declares_the_published_sizes() -> None:
    """176.94 billion weights, 51 of them in the n-gram table; 36 delta nets and 12 layers of sparse attention.

    27 KiB a position is what keeping the index key of every position would take; a key for four positions takes less.
    """
    geometry, counted = FAMILY.geometry(config()), count_parameters(FAMILY, config())
    without = count_parameters(FAMILY, config(ple_layer_ids=[]))
    assert (round(counted.main / 1e9, 2), round(counted.draft / 1e9, 2)) == (176.94, 2.61)
    assert round((counted.main - without.main) / 1e9, 1) == 51.2
    assert [count(geometry, kind) for kind in (KV, IndexKeys, Recent, Recurrent, Conv)] == [12, 12, 12, 36, 37]
    assert geometry.states["layers.3.kv"] == KV(2, 256, 256)
    assert geometry.states["layers.3.index.keys"] == IndexKeys(128, 4)
    assert geometry.states["layers.1.ngram_conv"] == Conv(10240, 4, dilation=3)
    keys_values, index_keys = 12 * 2 * (2 * 256 * 2), 12 * 2 * 128
    assert keys_values + index_keys == 27 * 1024
    assert keys_values + index_keys / 4 == 24.75 * 1024
    assert geometry.window == 262144 and geometry.layers == 48


def test_its_rows_are_all_streams_side_by_side() -> None:
    """The draft head wants them before they are mixed."""
    assert FAMILY.geometry(config()).hidden == 4 * 2560


def test_a_config_without_a_draft_head_declares_none() -> None:
    """Neither its states nor its weights."""
    without = config(mtp_num_hidden_layers=0)
    geometry = FAMILY.geometry(without)
    assert count_parameters(FAMILY, without).draft == 0
    assert not [name for name, spec in geometry.states.items() if spec.group == "draft"]


def test_end_tokens_and_sampling_come_from_every_config() -> None:
    """The text section and the generation config together: neither has all."""
    geometry = FAMILY.geometry(config({"eos_token_id": [248046, 248044], "temperature": 1.0, "top_k": 20}))
    assert geometry.stop_ids == {248044, 248046}
    assert (geometry.sampling.temperature, geometry.sampling.top_k) == (1.0, 20)


def test_hash_tables_have_prime_sizes() -> None:
    """From a number on, that number itself included."""
    assert primes_from(0, 6) == (2, 3, 5, 7, 11, 13)
    assert primes_from(7, 3) == (7, 11, 13)
    assert primes_from(20_000_000, 2) == (20_000_003, 20_000_023)

"""What the Gemma family claims, refuses and declares, from configs alone."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.compute.declaring import count_parameters
from tensorfold.contracts.family import Geometry
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.states import KV
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_gemma.family import GemmaFamily
from tensorfold_model_gemma.gemma3 import gemma3_config

FAMILY = GemmaFamily()
SLIDING, FULL = "sliding_attention", "full_attention"

SMALL: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "sliding_window": 24,
    "max_position_embeddings": 128,
}
GEMMA4 = {
    **SMALL,
    "layer_types": [SLIDING, SLIDING, FULL] * 2,
    "global_head_dim": 32,
    "hidden_size_per_layer_input": 0,
}

PUBLISHED: dict[str, Any] = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "model_type": "gemma4",
    "eos_token_id": [1, 106, 50],
    "tie_word_embeddings": True,
}
PUBLISHED_TEXT: dict[str, Any] = {
    "model_type": "gemma4_text",
    "attention_bias": False,
    "attention_k_eq_v": True,
    "eos_token_id": 1,
    "final_logit_softcapping": 30.0,
    "global_head_dim": 512,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size_per_layer_input": 0,
    "max_position_embeddings": 262144,
    "num_kv_shared_layers": 0,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {
        FULL: {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
        SLIDING: {"rope_theta": 10000.0, "rope_type": "default"},
    },
    "sliding_window": 1024,
    "vocab_size": 262144,
}
GEMMA_4_31B = {
    **PUBLISHED,
    "text_config": {
        **PUBLISHED_TEXT,
        "enable_moe_block": False,
        "layer_types": ([SLIDING] * 5 + [FULL]) * 10,
        "num_hidden_layers": 60,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "num_global_key_value_heads": 4,
    },
}
GEMMA_4_26B_A4B = {
    **PUBLISHED,
    "text_config": {
        **PUBLISHED_TEXT,
        "enable_moe_block": True,
        "layer_types": ([SLIDING] * 5 + [FULL]) * 5,
        "num_hidden_layers": 30,
        "hidden_size": 2816,
        "intermediate_size": 2112,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "num_global_key_value_heads": 2,
        "num_experts": 128,
        "top_k_experts": 8,
        "moe_intermediate_size": 704,
    },
}


def config(model_type: str | None, values: dict[str, Any], **more: Any) -> ModelConfig:
    named = {} if model_type is None else {"model_type": model_type}
    return ModelConfig({**values, **named, **more}, {}, "config.json")


def gemma3(**values: Any) -> ModelConfig:
    return config("gemma3_text", SMALL, **values)


def gemma4(**values: Any) -> ModelConfig:
    return config("gemma4_text", GEMMA4, **values)


def states(given: ModelConfig) -> list[KV]:
    return [spec for spec in FAMILY.geometry(given).states.values() if isinstance(spec, KV)]


# ---- claims -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", ["gemma3", "gemma3_text", "gemma4", "gemma4_text"])
def test_a_known_model_type_is_claimed_first(model_type: str) -> None:
    """Score 100, with the type as the reason."""
    claim = FAMILY.claim(config(model_type, GEMMA4))
    assert claim is not None and claim.score == 100 and model_type in claim.reason


def test_others_are_claimed_by_architecture_then_by_shape() -> None:
    """Fine-tunes rename the type; a config without a name has keys that only a Gemma 4 has."""
    renamed = FAMILY.claim(config("my_gemma", SMALL, architectures=["Gemma3ForCausalLM"]))
    assert renamed is not None and renamed.score == 50 and "Gemma3ForCausalLM" in renamed.reason
    unnamed = FAMILY.claim(config(None, GEMMA4, attention_k_eq_v=False, num_kv_shared_layers=0))
    assert unnamed is not None and unnamed.score == 20
    for other in (config("gemma2", SMALL), config(None, SMALL), config("gemma3n", GEMMA4)):
        assert FAMILY.claim(other) is None


def test_towers_are_left_and_told_of() -> None:
    """The reason says so; what the checkpoint can see, the capabilities say."""
    towers = {"vision_config": {"hidden_size": 16}, "audio_config": {"hidden_size": 16}}
    given = config("gemma4", {"text_config": GEMMA4, **towers})
    claim = FAMILY.claim(given)
    assert claim is not None and "vision and audio tower left" in claim.reason
    assert FAMILY.geometry(given).capabilities == {"tools", "thinking", "vision"}
    assert FAMILY.geometry(gemma4()).capabilities == {"tools", "thinking"}
    assert FAMILY.geometry(gemma3()).capabilities == frozenset()


# ---- refusals -----------------------------------------------------------------------------------------------

ALIKE: list[tuple[str, Any]] = [
    ("hidden_activation", "gelu"),
    ("attn_logit_softcapping", 50.0),
    ("final_logit_softcapping", 0.0),
    ("layer_types", [FULL]),
    ("layer_types", ["chunked_attention"] * 6),
    ("num_key_value_heads", 3),
    ("head_dim", 15),
    ("sliding_window", 0),
    ("rope_parameters", {"rope_type": "default", "rope_theta": 1e4}),
    ("rope_parameters", {FULL: {"rope_type": "own"}, SLIDING: {"rope_type": "own"}}),
    ("rope_parameters", {kind: {"rope_type": "default", "partial_rotary_factor": 0.5} for kind in (FULL, SLIDING)}),
    ("num_experts", 4),
    ("hidden_size", None),
]


@pytest.mark.parametrize(
    ("key", "value"), [*ALIKE, ("use_bidirectional_attention", True), ("query_pre_attn_scalar", 0)]
)
def test_what_gemma_3_is_not_run_with_is_refused_by_the_name_of_its_key(key: str, value: Any) -> None:
    """Before any weight is read, with the file that says so, also in a text section."""
    with pytest.raises(CheckpointUnsupported, match=rf"config\.json.*{key}"):
        FAMILY.claim(gemma3(**{key: value}))
    with pytest.raises(CheckpointUnsupported, match=rf"config\.json.*text_config.*{key}"):
        FAMILY.claim(config("gemma3", {"text_config": {**SMALL, key: value}}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *ALIKE,
        ("use_bidirectional_attention", "all"),
        ("layer_types", [FULL] * 5 + [SLIDING]),
        ("num_kv_shared_layers", 6),
        ("num_kv_shared_layers", 4),
        ("per_layer_config", {"2": {"sliding_window": 3}}),
        ("per_layer_config", {"5": {"num_key_value_heads": 3}}),
        ("rope_scaling", {"rope_type": "linear", "factor": 2.0}),
        ("vocab_size_per_layer_input", 95),
    ],
)
def test_what_gemma_4_is_not_run_with_is_refused_by_the_name_of_its_key(key: str, value: Any) -> None:
    """Before any weight is read, with the file that says so."""
    name = key if key != "per_layer_config" else "(per_layer_config|num_key_value_heads)"
    with pytest.raises(CheckpointUnsupported, match=rf"config\.json.*{name}"):
        FAMILY.claim(gemma4(**{"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 96, key: value}))


@pytest.mark.parametrize(("key", "value"), [("top_k_experts", 9), ("num_experts", None), ("moe_intermediate_size", 0)])
def test_experts_that_cannot_be_are_refused_by_name(key: str, value: Any) -> None:
    """Their number, how many are chosen, their width."""
    sizes = {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 16}
    with pytest.raises(CheckpointUnsupported, match=key):
        FAMILY.claim(gemma4(**{**sizes, key: value}))


# ---- what is declared ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("published", "billions", "kib", "mib"), [(GEMMA_4_31B, 30.70, 80, 799), (GEMMA_4_26B_A4B, 25.23, 20, 200)]
)
def test_published_models_have_the_sizes_and_the_states_that_are_known_of_them(
    published: dict[str, Any], billions: float, kib: int, mib: int
) -> None:
    """Weights, bytes a token in bfloat16, and what the windows hold at most."""
    given = ModelConfig(published, {"eos_token_id": [1, 106]}, "config.json")
    geometry: Geometry = FAMILY.geometry(given)
    assert round(count_parameters(FAMILY, given).main / 1e9, 2) == billions
    assert geometry.stop_ids == {1, 50, 106}
    assert (geometry.window, geometry.vocabulary) == (262144, 262144)
    rows = [
        (spec.window, spec.heads * (spec.k_dim + spec.v_dim) * 2)
        for spec in geometry.states.values()
        if isinstance(spec, KV)
    ]
    assert sum(bytes for window, bytes in rows if window is None) == kib << 10
    assert round(sum((window - 1) * bytes for window, bytes in rows if window is not None) / 2**20) == mib


def test_layers_see_a_window_by_list_or_by_pattern() -> None:
    """Every sixth layer sees all when a config says nothing, and the last of a Gemma 4; a long window is none."""
    assert [spec.window for spec in states(gemma3(sliding_window_pattern=3))] == [24, 24, None] * 2
    assert [spec.window for spec in states(gemma3(num_hidden_layers=7))] == [24] * 5 + [None, 24]
    assert [spec.window for spec in states(gemma4(layer_types=None, num_hidden_layers=7))] == [24] * 5 + [None, None]
    assert [spec.window for spec in states(gemma3(sliding_window=128))] == [None] * 6


def test_full_layers_of_gemma_4_have_heads_of_their_own() -> None:
    """By the keys of published configs, of which key heads count only where keys are values; or layer by layer."""
    assert states(gemma4())[1:3] == [KV(2, 16, 16, 24), KV(2, 32, 32)]
    assert states(gemma4(num_global_key_value_heads=1))[2] == KV(2, 32, 32)
    assert states(gemma4(num_global_key_value_heads=1, attention_k_eq_v=True))[2] == KV(1, 32, 32)
    by_layer = {"2": {"head_dim": 8, "num_key_value_heads": 4}, "5": {"head_dim": 64}}
    assert states(gemma4(per_layer_config=by_layer))[2::3] == [KV(4, 8, 8), KV(2, 64, 64)]


def test_the_last_layers_may_share_the_keys_of_earlier_ones() -> None:
    """Only those that have keys of their own have a state."""
    shared = gemma4(num_kv_shared_layers=3)
    assert list(FAMILY.geometry(shared).states) == ["layers.0.kv", "layers.1.kv", "layers.2.kv"]
    wide = gemma4(num_kv_shared_layers=3, use_double_wide_mlp=True)
    assert count_parameters(FAMILY, wide).main - count_parameters(FAMILY, shared).main == 3 * 3 * 32 * 48


def test_what_a_gemma_3_config_leaves_out_is_as_in_its_class() -> None:
    """Published configs of the larger models give a few sizes and rely on the rest."""
    few = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    given = config("gemma3", {"text_config": {**few, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}})
    read = gemma3_config(given)
    assert (read.vocabulary, read.heads, read.window, read.scale) == (262208, 8, 131072, 1 / 16)
    assert states(given)[4:6] == [KV(4, 256, 256, 1024), KV(4, 256, 256)]
    sliding, full = read.layers[4].rope, read.layers[5].rope
    assert sliding.inv_freq[0] == 1.0 and full.inv_freq[0] == 1 / 8
    assert sliding.inv_freq[64] == pytest.approx(10_000**-0.5)
    assert full.inv_freq[64] == pytest.approx(1_000_000**-0.5 / 8)

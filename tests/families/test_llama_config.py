"""What the Llama family claims, refuses and declares, from configs alone."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.contracts.family import SamplingDefaults
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.states import KV
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_llama.family import LlamaFamily

FAMILY = LlamaFamily()

SMALL: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
}


def config(model_type: str | None = "llama", generation: dict[str, Any] | None = None, **values: Any) -> ModelConfig:
    named = {} if model_type is None else {"model_type": model_type}
    return ModelConfig({**SMALL, **named, **values}, generation or {}, "config.json")


def windows(given: ModelConfig) -> list[int | None]:
    states = FAMILY.geometry(given).states.values()
    return [spec.window for spec in states if isinstance(spec, KV)]


# ---- claims -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3"])
def test_a_known_model_type_is_claimed_first(model_type: str) -> None:
    """Score 100, with the type as the reason."""
    claim = FAMILY.claim(config(model_type))
    assert claim is not None and claim.score == 100 and model_type in claim.reason


def test_a_model_type_of_its_own_is_claimed_by_its_architecture() -> None:
    """Fine-tunes rename the type and keep the class."""
    renamed = config("my_llama", architectures=["MistralForCausalLM"], sliding_window=16)
    claim = FAMILY.claim(renamed)
    assert claim is not None and claim.score == 50 and "MistralForCausalLM" in claim.reason
    assert windows(renamed) == [16] * 4


def test_a_config_without_a_name_is_claimed_by_its_shape() -> None:
    """Only when it names neither type nor architecture: others have the same keys and other arithmetic."""
    claim = FAMILY.claim(config(None))
    assert claim is not None and claim.score == 10
    assert FAMILY.claim(config("gemma")) is None
    assert FAMILY.claim(config(None, architectures=["GemmaForCausalLM"])) is None
    assert FAMILY.claim(ModelConfig({"hidden_size": 32}, {}, "config.json")) is None


# ---- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_local_experts", 8),
        ("num_experts", 8),
        ("attention_chunk_size", 64),
        ("hidden_act", "gelu"),
        ("hidden_act", "xielu"),
        ("partial_rotary_factor", 0.5),
        ("final_logit_softcapping", 30.0),
        ("embedding_multiplier", 12.0),
        ("rope_scaling", {"rope_type": "su", "factor": 2.0}),
        ("rope_scaling", {"rope_type": "linear", "factor": 2.0, "mrope_section": [1, 1, 2]}),
        ("rope_parameters", {"full_attention": {"rope_type": "default"}}),
        ("layer_types", ["full_attention"] * 3 + ["sliding_attention"]),
        ("layer_types", ["linear_attention"] * 4),
        ("layer_types", ["full_attention"]),
        ("num_key_value_heads", 3),
        ("head_dim", 7),
        ("num_hidden_layers", 0),
        ("vocab_size", None),
        ("intermediate_size", "48"),
        ("is_encoder_decoder", True),
    ],
)
def test_what_is_not_run_is_refused_by_the_name_of_its_key(key: str, value: Any) -> None:
    """Before any weight is read, with the file that says so."""
    with pytest.raises(CheckpointUnsupported, match=rf"config\.json.*{key.split('.')[0]}"):
        FAMILY.claim(config("llama", **{key: value}))


def test_values_that_change_nothing_are_no_reason_to_refuse() -> None:
    """Keys of other models at the values at which they are idle."""
    idle = config(
        "llama",
        num_local_experts=0,
        partial_rotary_factor=1.0,
        embedding_multiplier=1.0,
        attention_chunk_size=None,
        layer_types=["full_attention"] * 4,
        pretraining_tp=2,
        attention_dropout=0.1,
        rope_scaling=None,
    )
    assert FAMILY.claim(idle) is not None


# ---- what is declared ---------------------------------------------------------------------------------------


def test_mistral_sees_a_window_in_every_layer_unless_the_config_says_null() -> None:
    """4096 when the key is missing, as in transformers; a window as long as the context is none."""
    assert windows(config("mistral", sliding_window=16)) == [16] * 4
    assert windows(config("mistral", sliding_window=None)) == [None] * 4
    assert windows(config("mistral", max_position_embeddings=8192)) == [4096] * 4
    assert windows(config("mistral", sliding_window=128)) == [None] * 4


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
def test_qwen_sees_a_window_where_the_config_says_so(model_type: str) -> None:
    """`use_sliding_window` with `max_window_layers` or `layer_types`; llama never."""
    assert windows(config(model_type, sliding_window=16, max_window_layers=1)) == [None] * 4
    on: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 16}
    assert windows(config(model_type, max_window_layers=1, **on)) == [None, 16, 16, 16]
    assert windows(config(model_type, **on)) == [None] * 4
    types = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    assert windows(config(model_type, layer_types=types, **on)) == [16, None, 16, None]
    assert windows(config("llama", **on)) == [None] * 4


def test_end_tokens_are_those_of_both_configs() -> None:
    """One integer or a list, in either file."""
    both = config(generation={"eos_token_id": [5, 7]}, eos_token_id=2)
    assert FAMILY.geometry(both).stop_ids == {2, 5, 7}
    assert FAMILY.geometry(config()).stop_ids == frozenset()


def test_recommended_sampling_is_the_default() -> None:
    """What `generation_config.json` recommends becomes the default; what it does not say stays open."""
    recommended: dict[str, object] = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0}
    assert FAMILY.geometry(config(generation=recommended)).sampling == SamplingDefaults(0.6, 0.95, 20, 0.0)
    greedy = FAMILY.geometry(config(generation={**recommended, "do_sample": False})).sampling
    assert greedy == SamplingDefaults(0.0, 0.95, 20, 0.0)
    assert FAMILY.geometry(config(generation={"do_sample": True})).sampling == SamplingDefaults(1.0)
    assert FAMILY.geometry(config(generation={**recommended, "do_sample": True})).sampling.temperature == 0.6
    assert FAMILY.geometry(config()).sampling == SamplingDefaults()
    assert FAMILY.geometry(config(generation={"top_k": -1})).sampling.top_k == 0
    for key, value in (("temperature", -1.0), ("top_p", 2.0), ("top_k", "many")):
        with pytest.raises(CheckpointUnsupported, match=key):
            FAMILY.geometry(config(generation={key: value}))


def test_sizes_that_a_config_leaves_out_are_those_of_its_type() -> None:
    """Key heads, head width and window have the defaults of transformers' classes."""
    bare = {key: value for key, value in SMALL.items() if key not in ("num_key_value_heads", "max_position_embeddings")}
    llama = FAMILY.geometry(ModelConfig({**bare, "model_type": "llama"}, {}, "config.json"))
    assert llama.states["layers.0.kv"] == KV(4, 8, 8) and llama.window == 2048
    qwen3 = FAMILY.geometry(ModelConfig({**bare, "model_type": "qwen3"}, {}, "config.json"))
    assert qwen3.states["layers.0.kv"] == KV(4, 128, 128) and qwen3.window == 32768


def test_yarn_stretches_the_window() -> None:
    """A checkpoint that was told to run YaRN runs to the pretraining's length times the factor."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    assert FAMILY.geometry(config("qwen2", rope_scaling=yarn)).window == 512
